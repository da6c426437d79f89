// engine.hpp - what an engine brings along: memory with a budget, and jobs (frame.cpp gives them to the library)
#ifndef ENGINE_HPP
#define ENGINE_HPP
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

// ---- the engine's memory: what goes beyond the budget fails, and the library reports OUT_OF_MEMORY ----

struct Memory {
    static constexpr std::size_t budget = 64u << 20;
    std::atomic<std::size_t> used{0}, peak{0}, calls{0};

    static void *alloc(void *user, std::size_t bytes, std::size_t alignment) {
        auto *m = static_cast<Memory *>(user);
        std::size_t now = m->used.fetch_add(bytes) + bytes;
        void *p = now <= budget ? ::operator new(bytes, std::align_val_t(alignment), std::nothrow) : nullptr;
        if (!p) {
            m->used -= bytes;
            return nullptr;
        }
        m->calls++;
        if (now > m->peak) { m->peak = now; }
        return p;
    }
    static void free(void *user, void *p, std::size_t bytes, std::size_t alignment) {
        static_cast<Memory *>(user)->used -= bytes;
        ::operator delete(p, std::align_val_t(alignment));
    }
};

// ---- the engine's jobs: the caller takes part, so a loop inside a loop cannot wait for ever ----

class Jobs {
    struct Loop {
        int64_t n;
        void (*task)(void *arg, int64_t i);
        void *arg;
        int inside = 0;
        std::atomic<int64_t> next{0};

        void run() {
            for (int64_t i = next++; i < n; i = next++) { task(arg, i); }
        }
    };
    std::mutex mutex;
    std::condition_variable wake, left;
    std::vector<Loop *> loops;
    std::vector<std::thread> threads;
    bool stopped = false;

    void work() {
        std::unique_lock lock(mutex);
        while (wake.wait(lock, [this] { return stopped || !loops.empty(); }), !stopped) {
            Loop *loop = loops.back();
            loop->inside++;
            lock.unlock();
            loop->run();
            lock.lock();
            std::erase(loops, loop);
            if (--loop->inside == 0) { left.notify_all(); }
        }
    }

public:
    explicit Jobs(int n) {
        for (int i = 0; i < n; i++) { threads.emplace_back([this] { work(); }); }
    }
    ~Jobs() {
        { std::scoped_lock lock(mutex); stopped = true; }
        wake.notify_all();
        for (auto &thread : threads) { thread.join(); }
    }
    static void parallel_for(void *user, int64_t n, void (*task)(void *arg, int64_t i), void *arg) {
        auto *jobs = static_cast<Jobs *>(user);
        Loop loop{n, task, arg};
        { std::scoped_lock lock(jobs->mutex); jobs->loops.push_back(&loop); }
        jobs->wake.notify_all();
        loop.run();
        std::unique_lock lock(jobs->mutex);
        std::erase(jobs->loops, &loop);
        jobs->left.wait(lock, [&loop] { return loop.inside == 0; });
    }
};
#endif
