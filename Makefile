# tensor.h - what one can do here, a line each (every variable below can be given on the command line):
#
#   make run        train a small GPT, characters as tokens      TEXT=any.txt STEPS=50 RESUME=1 THREADS=2
#   make fashion    train a CNN on Fashion-MNIST                 DATA=dir EPOCHS=3 THREADS=2
#   make examples   build/01_tensors .. build/word_vectors; make gallery: runs 12 of them, writes docs/gallery.md
#   make web        the page that trains in the browser: build/web, for any file server; KEEP=1 sh tests/web.sh: its picture
#   make test       the tests, eight minutes of two cores; FULL=1: on other systems and processors too, half an hour
#   make fuzz|calls|coverage|memcheck|soak|mutants|stack-usage   long ways of looking for defects: tests/campaign.mk
#   make docs       docs/ops.md from the op tables and headers
#   make check      form of the sources: contents, docs, sizes, symbols
#   make split      the headers cut at their tags into build/split, for tools that search or draw files
#   make bench      speed, as ratios to references where there are any      QUICK=1 ROUNDS=3 OPS=all (every op)
#   make bench-compiled   steps and their replays beside torch.compile, jax.jit and ONNX Runtime   ROWS="chain mlp_infer_1"
#   make paper      every claim of the PyTorch paper, measured: docs/paper.md, 20 minutes; QUICK=1 without its six models
#   make gpu        tensor_cuda.cu on a GPU: PART=truth|ops|why RESULTS=dir PREBUILT=1; make gpu-build ARCH=sm_90: its programs
#   make lib        build/libtensor.a, for programs that link it instead of compiling the implementation
#   make shared     build/libtensor.so, for examples/python and other languages
#   make install    headers, libtensor.a, tensor.pc, the CMake package      PREFIX=/usr/local DESTDIR=; make clean

CC      = cc
CXX     = c++
NVCC    = nvcc
STD     = -std=c99
CFLAGS  = -O2
WARN    = -Wall -Wextra
LDFLAGS =
LDLIBS  = -lm
PREFIX  = /usr/local
B       = build
PYTHON  = python3

DATA    = /usr/share/datasets/fashion-mnist

# As many jobs as there are cores, unless the command line says how many.
ifeq ($(filter -j%,$(MAKEFLAGS)),)
MAKEFLAGS += -j$(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2)
endif
# A program that links with -Wl,--gc-sections drops the functions of the archive that it does not call.
SECTIONS = -ffunction-sections -fdata-sections -fno-asynchronous-unwind-tables

compile  = $(CC) $(STD) $(WARN) $(CFLAGS) -pthread -I.
headers  = tensor.h tensor_nn.h
names    = $(notdir $(basename $(wildcard examples/*.c)))
zoo      = $(patsubst examples/%.c,%,$(wildcard examples/models/*.c))
programs = $(filter-out compile_%,$(notdir $(basename $(wildcard tests/*.c))))
# Other compilers, flags, processors and systems, the emulated GPU, fuzzing: these take 40 minutes of two cores, all
# others eight. FULL=1, as in .ci/run, has them; without it make test counts them as skipped.
long     = cuda.sh compile.sh portable.sh subsets.sh export.sh fuzz.sh host.sh arm.sh windows.sh mcu.sh
scripts  = $(addprefix tests/,check.sh examples.sh readme.sh jobs.sh traps.sh wasm.sh engine.sh \
           differential.sh web.sh interop.sh options.sh models.sh gdb.sh python.sh parallel.sh fashion.sh callgrind.sh \
           $(if $(FULL),$(long)))
# These bring the implementation themselves; all other programs wait for it and are linked with it.
whole    = $(notdir $(basename $(shell grep -l 'define TENSOR_IMPLEMENTATION' examples/*.c tests/*.c bench/*.c)))
speed    = micro ops every models nets gpt_step

all: examples

$(B)/tensor_impl.c:
	@mkdir -p $(B)/tests $(B)/bench
	@printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' > $@

# The implementation in four parts, which compile side by side. Tests have every pass.
$(B)/part%.o: $(B)/tensor_impl.c $(headers)
	$(compile) $(SECTIONS) -DTENSOR_IMPLEMENTATION_PART=$* -c $< -o $@

$(B)/tests/part%.o: $(B)/tensor_impl.c $(headers)
	$(compile) -DTENSOR_ALL_PASSES -DTENSOR_ALL_ROWS -DTENSOR_IMPLEMENTATION_PART=$* -c $< -o $@

$(B)/libtensor.a $(B)/tests/libtensor.a: %/libtensor.a: %/part1.o %/part2.o %/part3.o %/part4.o
	@rm -f $@
	$(AR) rcs $@ $^

$(addprefix $(B)/,$(filter-out $(whole),$(names)) $(zoo)): $(B)/libtensor.a
$(addprefix $(B)/tests/,$(filter-out $(whole),$(programs))): $(B)/tests/libtensor.a
$(addprefix $(B)/bench/,$(speed) fashion_mnist live replays profiled): $(B)/libtensor.a

$(B)/tests/ops.ok: tests/ops.sh tests/ops.def $(B)/tensor_impl.c $(headers)
	@sh tests/ops.sh && touch $@
$(B)/%: examples/%.c $(wildcard examples/kit/*.h examples/models/*.h) $(B)/tensor_impl.c $(headers)
	@mkdir -p $(@D)
	$(compile) $(LDFLAGS) $< $(filter %.a,$^) $(LDLIBS) -o $@

$(B)/tests/%: tests/%.c $(wildcard tests/*.h examples/kit/*.h examples/models/*.h) $(B)/tests/ops.ok $(headers)
	$(compile) -DTENSOR_ALL_PASSES -DTENSOR_ALL_ROWS $(LDFLAGS) $< $(filter %.a,$^) $(LDLIBS) -o $@

$(B)/bench/%: bench/%.c $(wildcard bench/*.h tests/*.h examples/kit/*.h examples/models/*.h) tests/ops.def $(B)/tensor_impl.c $(headers)
	$(compile) $(LDFLAGS) $< $(filter %.a,$^) $(LDLIBS) -o $@

# The same parts, at any address.
$(B)/shared%.o: $(B)/tensor_impl.c $(headers)
	$(compile) $(SECTIONS) -fPIC -DTENSOR_IMPLEMENTATION_PART=$* -c $< -o $@

$(B)/libtensor.so: $(B)/shared1.o $(B)/shared2.o $(B)/shared3.o $(B)/shared4.o
	$(CC) -shared -pthread $(LDFLAGS) $^ $(LDLIBS) -o $@

lib: $(B)/libtensor.a
shared: $(B)/libtensor.so
examples: $(addprefix $(B)/,$(names) $(zoo))
gallery: examples; @B=$(B) CC='$(CC)' sh examples/gallery.sh

web:
	@B=$(B) sh examples/web/build.sh

# The program that somebody waits for brings its own implementation: what it calls, for this processor alone. That
# compiles in a third of the time of the archive; -O1 takes a fifth off again and trains as fast as -O2.
native = $(shell $(CC) -march=native -x c -fsyntax-only /dev/null 2>/dev/null && echo -march=native)
$(B)/native/%: examples/%.c $(headers)
	@mkdir -p $(@D)
	$(compile) $(native) -DTENSOR_ISA=native -DTENSOR_STATIC -DTENSOR_IMPLEMENTATION -DTENSOR_NN_IMPLEMENTATION \
	    -O1 -ftree-vectorize $(LDFLAGS) $< $(LDLIBS) -o $@

run: $(B)/native/char_gpt
	$(B)/native/char_gpt

# What is given on the command line is in the environment of the program. The package dataset-fashion-mnist has the files
# compressed; where they are not, and no DATA is given, the program draws clothes of its own.
fashion: $(B)/fashion
	@rm -rf $(B)/fashion-mnist && mkdir -p $(B)/fashion-mnist
	@for f in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do \
	    for from in "$(DATA)/$$f-ubyte" "$(DATA)/$$f-ubyte.gz"; do \
	        if [ ! -f "$$from" ]; then continue; fi; \
	        case $$from in *.gz) gunzip -c "$$from";; *) cat "$$from";; esac > $(B)/fashion-mnist/$$f-ubyte; \
	    done; \
	done
	@if [ -f $(B)/fashion-mnist/t10k-labels-idx1-ubyte ] || [ $(origin DATA) != file ]; then \
	    DATA=$(B)/fashion-mnist; export DATA; \
	fi; $(B)/fashion $(B)/fashion.png

test: test-build examples $(if $(FULL),$(B)/bench/fashion_mnist)
	@B=$(B) CC='$(CC)' CXX='$(CXX)' LEFT_OUT='$(if $(FULL),,$(long))' sh tests/run.sh $(addprefix $(B)/tests/,$(programs)) \
	    $(scripts)

# What small networks reach on the real pictures, four of five seeds of each: twelve minutes of a core.
fashion-proof: $(B)/bench/fashion_mnist
	@B=$(B) sh tests/fashion.sh proof

# The test programs alone, for other flags:  make test-programs B=build/asan CFLAGS='-g -fsanitize=address'
test-programs: test-build
	@B=$(B) sh tests/run.sh $(addprefix $(B)/tests/,$(programs))

# The test programs that start threads. The others have no race to be found.   make test-threads CFLAGS='-g -fsanitize=thread'
threaded = $(notdir $(basename $(shell grep -lE 'set_num_threads|parallel_for|pthread|workers' $(programs:%=tests/%.c))))
test-threads: $(addprefix $(B)/tests/,$(threaded))
	@B=$(B) sh tests/run.sh $^

# tests/docs, one of the test programs, fails when the committed file is another one.
docs: $(B)/tests/docs
	@mkdir -p docs
	$(B)/tests/docs print > docs/ops.md

test-build: $(addprefix $(B)/tests/,$(programs))

check: $(B)/libtensor.a
	@B=$(B) sh tests/check.sh

# A piece begins at the rule above its >>tag; what comes before the first tag is 00-top.
split:
	@rm -rf $(B)/split
	@for f in $(wildcard tensor*.h tensor*.cu); do \
	    mkdir -p $(B)/split/$$f; \
	    awk -v to=$(B)/split/$$f/ -v ext=$${f##*.} ' \
	        function piece(name) { if (out) close(out); out = sprintf("%s%02d-%s.%s", to, n++, name, ext) } \
	        BEGIN { piece("top") } \
	        /^\/\/ >>[a-z0-9-]+ / { piece(substr($$2, 3)) } \
	        held { print rule > out; held = 0 } \
	        /^\/\/ -----/ { rule = $$0; held = 1; next } \
	        { print > out } \
	        END { if (held) print rule > out }' $$f; \
	    cat $(B)/split/$$f/* | cmp - $$f || exit 1; \
	done
	@echo "$$(ls $(B)/split/*/* | wc -l) files in $(B)/split"

bench: $(addprefix $(B)/bench/,$(speed))
	@B=$(B) CC='$(CC)' PYTHON='$(PYTHON)' QUICK='$(QUICK)' OPS='$(OPS)' sh bench/run.sh

bench-compiled: $(B)/bench/replays
	@$(PYTHON) bench/compiled.py $(B) $(ROWS)

paper:
	@B=$(B) CC='$(CC)' CXX='$(CXX)' PYTHON='$(PYTHON)' QUICK='$(QUICK)' sh bench/paper.sh

gpu gpu-build:
	@B=$(B) CC='$(CC)' NVCC='$(NVCC)' PYTHON='$(PYTHON)' sh bench/gpu.sh $(if $(filter gpu-build,$@),build,$(PART))

version = $(shell sed -n 's,^// tensor.h - v\([0-9.]*\).*,\1,p' tensor.h)
to      = $(DESTDIR)$(PREFIX)
define cmake_package
get_filename_component(root "$${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
find_package(Threads REQUIRED)
if(NOT TARGET tensor::tensor)
  add_library(tensor::tensor STATIC IMPORTED)
  set_target_properties(tensor::tensor PROPERTIES IMPORTED_LOCATION "$${root}/lib/libtensor.a"
    INTERFACE_INCLUDE_DIRECTORIES "$${root}/include" INTERFACE_LINK_LIBRARIES "Threads::Threads;m")
endif()
endef
export cmake_package
install: $(B)/libtensor.a
	mkdir -p $(to)/include $(to)/lib/pkgconfig $(to)/lib/cmake/tensor
	cp $(wildcard tensor*.h tensor*.cu) $(to)/include
	cp $(B)/libtensor.a $(to)/lib
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: tensor' 'Description: tensors, autograd and layers in C headers' \
	    'Version: $(version)' 'Cflags: -I$${prefix}/include' \
	    'Libs: -L$${prefix}/lib -ltensor -lm -pthread' > $(to)/lib/pkgconfig/tensor.pc
	printf '%s\n' "$$cmake_package" > $(to)/lib/cmake/tensor/tensorConfig.cmake
	printf '%s\n' 'set(PACKAGE_VERSION $(version))' 'if(NOT PACKAGE_FIND_VERSION VERSION_GREATER PACKAGE_VERSION)' \
	    '  set(PACKAGE_VERSION_COMPATIBLE TRUE)' 'endif()' > $(to)/lib/cmake/tensor/tensorConfigVersion.cmake

clean:
	rm -rf $(B)

.PHONY: all lib shared examples gallery web run fashion fashion-proof test test-programs test-threads test-build docs check bench bench-compiled paper split gpu gpu-build install clean
include tests/campaign.mk
.SECONDARY:
