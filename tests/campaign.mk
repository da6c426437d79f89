# campaign.mk - ways of looking for defects that take longer than make test
#
#   make fuzz             new inputs for readers, parsed strings and sequences of calls      SECONDS=60
#   make calls            random programs of API calls in process      N=10000000 SEED=1
#   make coverage         lines and branches of the headers that the tests reach, room by room
#   make memcheck         the core's test programs under valgrind      MEMCHECK="autograd nn"
#   make soak             a million steps of training: no allocation, no page more
#   make mutants          small faults in the headers, chosen at run time: how many the tests notice    EVERY=9
#   make stack-usage      docs/stack.md: bytes of stack of each family of calls
#   make test-exhaustive  every float through every unary kernel (an hour)

# Where the linker can, malloc fails in these (tests/heap.h).
ifeq ($(shell uname -s),Linux)
$(B)/tests/oom $(B)/tests/ops_memory: LDFLAGS += -DHEAP_WRAPPED -Wl,--wrap=malloc,--wrap=free
endif

$(B)/tests/seeds: $(wildcard tests/fuzz/*)

fuzz: $(B)/tests/seeds
	@B=$(B) SECONDS_EACH='$(or $(SECONDS),60)' sh tests/fuzz.sh

calls: $(B)/tests/ops.ok
	@B=$(B) CC='$(CC)' N='$(N)' SEED='$(SEED)' sh tests/calls.sh

coverage: $(B)/tests/ops.ok
	@B=$(B) CC='$(CC)' sh tests/coverage.sh $(filter-out $(whole),$(programs))

# What reads memory that nothing was written to; outside of make test.
MEMCHECK = autograd calculus composed graph_limits indexing linalg malformed nn seeds sequence views
memcheck: $(addprefix $(B)/tests/,$(MEMCHECK))
	@sh tests/memcheck.sh $^

soak: $(B)/tests/files
	$(B)/tests/files soak

mutants: $(B)/tests/ops.ok
	@B=$(B) CC='$(CC)' EVERY='$(EVERY)' sh tests/mutants.sh

stack-usage: $(B)/tests/stack
	$(B)/tests/stack print > docs/stack.md

test-exhaustive: $(B)/tests/ulp
	$(B)/tests/ulp all

.PHONY: fuzz calls coverage memcheck soak mutants stack-usage test-exhaustive
