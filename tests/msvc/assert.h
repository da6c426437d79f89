// Stubs of the headers that MSVC's C and C++ have: only the declarations that the library uses, as Microsoft documents
// them. tests/host.sh checks the library's source against them with clang's target for MSVC.
#ifndef STUB_ASSERT_H
#define STUB_ASSERT_H
#define assert(x) ((void)(x))
#endif
