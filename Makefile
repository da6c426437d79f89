# tensor.h - what one can do here, a line each (every variable below can be given on the command line):
#
#   make run        train a small GPT, characters as tokens      TEXT=any.txt STEPS=50 RESUME=1 THREADS=2
#   make fashion    train a CNN on Fashion-MNIST                 DATA=dir EPOCHS=3 THREADS=2
#   make examples   build/01_tensors .. build/word_vectors; make gallery: runs 12 of them, writes docs/gallery.md
#   make web        the page that trains in the browser: build/web, for any file server; KEEP=1 sh tests/web.sh: its picture
#   make test       all tests that a C compiler can run
#   make fuzz|coverage|memcheck|mutants|stack-usage   long ways of looking for defects: tests/campaign.mk
#   make docs       docs/ops.md from the op tables and headers
#   make check      form of the sources: contents, docs, sizes, symbols
#   make split      the headers cut at their tags into build/split, for tools that search or draw files
#   make bench      speed, as ratios to references where there are any      QUICK=1 ROUNDS=3 OPS=all (every op)
#   make gpu        tensor_cuda.cu on a GPU: PART=truth|ops|why RESULTS=dir PREBUILT=1; make gpu-build ARCH=sm_90: its programs
#   make lib        build/libtensor.a, for programs that link it instead of compiling the implementation
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
programs = $(filter-out compile_%,$(notdir $(basename $(wildcard tests/*.c))))
scripts  = $(addprefix tests/,check.sh examples.sh readme.sh jobs.sh compile.sh traps.sh subsets.sh bits.sh arm.sh wasm.sh \
           cuda.sh host.sh windows.sh engine.sh fuzz.sh differential.sh web.sh)
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

$(addprefix $(B)/,$(filter-out $(whole),$(names))): $(B)/libtensor.a
$(addprefix $(B)/tests/,$(filter-out $(whole),$(programs))): $(B)/tests/libtensor.a
$(addprefix $(B)/bench/,$(speed)): $(B)/libtensor.a

$(B)/tests/ops.ok: tests/ops.sh tests/ops.def $(B)/tensor_impl.c $(headers)
	@sh tests/ops.sh && touch $@
$(B)/%: examples/%.c $(wildcard examples/kit/*.h) $(B)/tensor_impl.c $(headers)
	$(compile) $(LDFLAGS) $< $(filter %.a,$^) $(LDLIBS) -o $@

$(B)/tests/%: tests/%.c $(wildcard tests/*.h examples/kit/*.h) $(B)/tests/ops.ok $(headers)
	$(compile) -DTENSOR_ALL_PASSES -DTENSOR_ALL_ROWS $(LDFLAGS) $< $(filter %.a,$^) $(LDLIBS) -o $@

$(B)/bench/%: bench/%.c $(wildcard tests/*.h) tests/ops.def $(B)/tensor_impl.c $(headers)
	$(compile) $(LDFLAGS) $< $(filter %.a,$^) $(LDLIBS) -o $@

lib: $(B)/libtensor.a
examples: $(addprefix $(B)/,$(names))
gallery: examples; @B=$(B) CC='$(CC)' sh examples/gallery.sh

web:
	@B=$(B) sh examples/web/build.sh

run: $(B)/char_gpt
	$(B)/char_gpt

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

test: test-build examples
	@B=$(B) CC='$(CC)' CXX='$(CXX)' sh tests/run.sh $(addprefix $(B)/tests/,$(programs)) $(scripts)

# The test programs alone, for other flags:  make test-programs B=build/asan CFLAGS='-g -fsanitize=address'
test-programs: test-build
	@B=$(B) sh tests/run.sh $(addprefix $(B)/tests/,$(programs))

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

.PHONY: all lib examples gallery web run fashion test test-programs test-build docs check bench split gpu gpu-build install clean
include tests/campaign.mk
.SECONDARY:
