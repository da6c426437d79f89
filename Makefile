# tensor.h - what one can do here, a line each (every variable below can be given on the command line):
#
#   make run        train a small GPT, characters as tokens      TEXT=any.txt STEPS=50 RESUME=1 THREADS=2
#   make fashion    train a CNN on Fashion-MNIST                 DATA=dir EPOCHS=3 THREADS=2
#   make examples   build/01_tensors .. build/fashion
#   make test       all tests that a C compiler can run
#   make test-exhaustive   every float through every unary kernel (an hour)
#   make docs       docs/ops.md from the op tables and headers
#   make check      form of the sources: contents, docs, sizes, symbols
#   make bench      speed, as ratios to references where there are any      QUICK=1 ROUNDS=3
#   make gpu        tensor_cuda.cu on this machine's GPU: tests, speed, bench/results/gpu-DATE.md
#   make install    headers and tensor.pc                        PREFIX=/usr/local DESTDIR=
#   make clean

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

compile  = $(CC) $(STD) $(WARN) $(CFLAGS) -pthread -I.
headers  = tensor.h tensor_nn.h
names    = $(notdir $(basename $(wildcard examples/*.c)))
programs = $(filter-out compile_%,$(notdir $(basename $(wildcard tests/*.c))))
scripts  = $(addprefix tests/,check.sh examples.sh readme.sh jobs.sh compile.sh bits.sh arm.sh wasm.sh cuda.sh)
# These bring the implementation themselves; all other programs wait for it and are linked with it.
whole    = $(notdir $(basename $(shell grep -l 'define TENSOR_IMPLEMENTATION' examples/*.c tests/*.c bench/*.c)))
speed    = micro ops models nets gpt_step

all: examples

$(B)/tensor_impl.c:
	@mkdir -p $(B)
	@printf '#define TENSOR_IMPLEMENTATION\n#define TENSOR_NN_IMPLEMENTATION\n#include "tensor_nn.h"\n' > $@

$(B)/tensor_impl.o: $(B)/tensor_impl.c $(headers)
	$(compile) -c $< -o $@

$(addprefix $(B)/,$(filter-out $(whole),$(names))): $(B)/tensor_impl.o
$(addprefix $(B)/tests/,$(filter-out $(whole),$(programs))): $(B)/tensor_impl.o
$(addprefix $(B)/bench/,$(speed)): $(B)/tensor_impl.o

$(B)/%: examples/%.c $(headers)
	@mkdir -p $(B)
	$(compile) $(LDFLAGS) $< $(filter %.o,$^) $(LDLIBS) -o $@

$(B)/tests/%: tests/%.c tests/test.h tests/mirror.h $(headers)
	@mkdir -p $(B)/tests
	$(compile) $(LDFLAGS) $< $(filter %.o,$^) $(LDLIBS) -o $@

$(B)/bench/%: bench/%.c $(headers)
	@mkdir -p $(B)/bench
	$(compile) $(LDFLAGS) $< $(filter %.o,$^) $(LDLIBS) -o $@

examples: $(addprefix $(B)/,$(names))

run: $(B)/char_gpt
	$(B)/char_gpt

# What is given on the command line is in the environment of the program. The package dataset-fashion-mnist has the files compressed.
fashion: $(B)/fashion
	@rm -rf $(B)/fashion-mnist && mkdir -p $(B)/fashion-mnist
	@for f in train-images-idx3 train-labels-idx1 t10k-images-idx3 t10k-labels-idx1; do \
	    for from in "$(DATA)/$$f-ubyte" "$(DATA)/$$f-ubyte.gz"; do \
	        if [ ! -f "$$from" ]; then continue; fi; \
	        case $$from in *.gz) gunzip -c "$$from";; *) cat "$$from";; esac > $(B)/fashion-mnist/$$f-ubyte; \
	    done; \
	done
	DATA=$(B)/fashion-mnist $(B)/fashion

test: test-build examples
	@B=$(B) CC='$(CC)' CXX='$(CXX)' sh tests/run.sh $(addprefix $(B)/tests/,$(programs)) $(scripts)

# The test programs alone, for other flags:  make test-programs B=build/asan CFLAGS='-g -fsanitize=address'
test-programs: test-build
	@B=$(B) sh tests/run.sh $(addprefix $(B)/tests/,$(programs))

test-exhaustive: $(B)/tests/ulp
	$(B)/tests/ulp all

# tests/docs, one of the test programs, fails when the committed file is another one.
docs: $(B)/tests/docs
	@mkdir -p docs
	$(B)/tests/docs print > docs/ops.md

test-build: $(addprefix $(B)/tests/,$(programs))

check: $(B)/tensor_impl.o
	@B=$(B) sh tests/check.sh

bench: $(addprefix $(B)/bench/,$(speed))
	@B=$(B) CC='$(CC)' PYTHON='$(PYTHON)' QUICK='$(QUICK)' sh bench/run.sh

gpu: $(B)/tensor_impl.o
	@B=$(B) CC='$(CC)' NVCC='$(NVCC)' sh bench/gpu.sh

install:
	mkdir -p $(DESTDIR)$(PREFIX)/include $(DESTDIR)$(PREFIX)/lib/pkgconfig
	cp $(wildcard tensor*.h tensor*.cu) $(DESTDIR)$(PREFIX)/include
	printf '%s\n' 'prefix=$(PREFIX)' 'Name: tensor' 'Description: tensors, autograd and layers in C headers' \
	    "Version: $$(sed -n 's,^// tensor.h - v\([0-9.]*\).*,\1,p' tensor.h)" \
	    'Cflags: -I$${prefix}/include' 'Libs: -lm -pthread' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/tensor.pc

clean:
	rm -rf $(B)

.PHONY: all examples run fashion test test-programs test-exhaustive test-build docs check bench gpu install clean
.SECONDARY:
