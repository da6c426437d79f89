// data_parallel.c - one net trained by several processes, each on its share of the samples (kit/parallel.h over MPI)
// Each batch is shared out; the gradients become their mean over the processes while backward runs. With one
// process or with more the losses are the same.
// Build: make lib && mpicc -std=c99 -O2 -pthread -I. -Iexamples examples/mpi/data_parallel.c build/libtensor.a -lm
//            -o build/data_parallel
// Run:   mpirun -np 2 build/data_parallel                   (STEPS=200, from the environment)
// Output: 2 processes: loss 0.0149, 98.9 % of 3000 points are right
#include "tensor_nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define KIT_PARALLEL_IMPLEMENTATION
#define KIT_MPI_IMPLEMENTATION
#include "kit/mpi.h"

enum { POINTS = 3000, ARMS = 3, BATCH = 120 };

// Three arms of a spiral: x [POINTS, 2] f32, y [POINTS] i64. All ranks make the same ones.
static void make_points(tensor_t **x, tensor_t **y) {
    float *at = (float *)malloc(sizeof(float) * 2 * POINTS);
    int64_t *arm = (int64_t *)malloc(sizeof(int64_t) * POINTS);
    for (int i = 0; at && arm && i < POINTS; i++) {
        double r = (double)(i / ARMS) / (POINTS / ARMS), turn = 4 * r + 2.094395 * (i % ARMS);
        at[2 * i] = (float)(r * sin(turn));
        at[2 * i + 1] = (float)(r * cos(turn));
        arm[i] = i % ARMS;
    }
    *x = tensor_from(at, TENSOR_F32, POINTS, 2);
    *y = tensor_from(arm, TENSOR_I64, POINTS);
    free(at);
    free(arm);
}

int main(void) {
    kit_collectives_t ranks;
    if (kit_mpi_ranks(&ranks, 30)) { return 1; }
    const char *text = getenv("STEPS");
    int steps = text ? atoi(text) : 200, a_turn = POINTS / BATCH;
    tensor_t *x, *y;
    make_points(&x, &y);
    tensor_manual_seed(1);
    nn_module_t *net =
        nn_sequential(nn_linear(2, 64), nn_relu(), nn_linear(64, 64), nn_relu(), nn_linear(64, ARMS));
    nn_optimizer_t *opt = nn_adam(net, .lr = 0.01);
    kit_parallel_t *p = kit_parallel_open(&ranks, net, opt, 0);

    tensor_scope_t scope = tensor_scope_begin();
    double shown = 0;
    int64_t mine = BATCH / ranks.size;          // samples of a batch on each rank
    for (int step = 0; p && step < steps && tensor_ok(); step++, tensor_scope_reset(scope)) {
        tensor_t *shard = kit_parallel_shard(p, POINTS, 7, (uint64_t)(step / a_turn));
        tensor_t *batch = tensor_narrow(shard, 0, step % a_turn * mine, mine);
        tensor_t *output = nn_forward(net, tensor_index_select(x, 0, batch));
        tensor_t *loss = tensor_cross_entropy(output, tensor_index_select(y, 0, batch));
        tensor_backward(kit_parallel_loss(p, loss, mine));
        if (kit_parallel_finish(p)) { break; }
        nn_step(opt);
        nn_zero_grad(opt);
        shown = kit_parallel_mean(p, tensor_item(loss), (double)mine);
    }
    tensor_t *found = tensor_argmax_dim(nn_forward(net, x), 1, 0);
    double right = 100 * tensor_item(tensor_mean(tensor_to(tensor_eq(found, y), TENSOR_F32)));
    if (ranks.rank == 0) {
        printf("%d processes: loss %.4f, %.1f %% of %d points are right\n", ranks.size, shown, right, POINTS);
    }
    kit_parallel_close(p);
    return tensor_shutdown();
}
