#ifndef STUB_FCNTL_H
#define STUB_FCNTL_H
#define _O_RDONLY 0x0000
#define _O_WRONLY 0x0001
#define _O_RDWR 0x0002
#define _O_CREAT 0x0100
#define _O_TRUNC 0x0200
#define _O_EXCL 0x0400
#define _O_BINARY 0x8000
#endif
