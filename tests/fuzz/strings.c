// strings.c - every string that a function parses. The first byte says which function, the second which
// tensors and numbers; the rest is the string.
#include "fuzz.h"

enum { STRING_KINDS = 18 };

static nn_module_t *net;

static void strings_setup(void) {
    if (!net) { net = nn_sequential(nn_linear(2, 2), nn_sequential(nn_linear(2, 3), nn_relu())); }
}

// Tensors of several ranks.
static tensor_t *string_tensor(unsigned which) {
    switch (which % 8) {
    case 0: return tensor_ones(2, 3);
    case 1: return tensor_reshape(tensor_arange(0, 24, 1, TENSOR_F32), 2, 3, 4);
    case 2: return tensor_scalar(1.5, TENSOR_F64);
    case 3: return tensor_transpose(tensor_reshape(tensor_arange(0, 12, 1, TENSOR_I64), 3, 4), 0, 1);
    case 4: return tensor_zeros(0, 3);
    case 5: return tensor_expand(tensor_ones(1, 3), 2, 3);
    case 6: return tensor_ones(1, 2, 1, 2, 1, 2, 1, 2);
    default: return tensor_to(tensor_add(tensor_eye(3, 3), tensor_ones(3, 3)), TENSOR_F64);
    }
}
// A result can be read; a failure has a code.
static void looked_at(tensor_t *y) {
    PROMISE(tensor_is_poison(y) == !tensor_ok(), "poison %d, error \"%s\"", tensor_is_poison(y),
            tensor_error_text());
    if (!tensor_is_poison(y)) {
        tensor_shape_t s = tensor_shape(y);
        int64_t n = 1;
        int d;
        for (d = 0; d < s.ndim; d++) { n *= s.dims[d]; }
        PROMISE(s.ndim >= 0 && s.ndim <= TENSOR_MAX_DIMS && n == tensor_numel(y), "%d dims, %lld elements",
                s.ndim, (long long)n);
        if (n <= 1 << 16) { test_hash(TEST_HASH, y); } // an expanded view may have as many as it likes
    }
}

static void strings(const uint8_t *data, size_t size) {
    bytes_t b = {data, data + size};
    unsigned kind = next_byte(&b) % STRING_KINDS, which = next_byte(&b);
    char *s = rest_as_string(&b), *bar = strchr(s, '|'), room[300];
    tensor_t *x = string_tensor(which), *list[3], *out[3], *index;
    tensor_qr_t qr;
    int64_t sizes[8] = {0, 0, 2, 0, 0, 3, 0, 0}, *to[8];
    int k, n;
    list[0] = x, list[1] = string_tensor(which >> 3), list[2] = string_tensor(which >> 6);
    switch (kind) {
    case 0: looked_at(tensor_at(x, s)); break;
    case 1: looked_at(tensor_einsum_n(s, list, (int)(which >> 6) % 4)); break;
    case 2: looked_at(tensor_einsum_n(s, list, 1 + (int)(which & 1))); break;
    case 3:
    case 4:
        if (bar) { *bar = 0; }
        looked_at(tensor_rearrange(x, s, bar ? bar + 1 : NULL, .h = which >> 5, .w = kind == 4 ? 2 : 0,
                                   .b = which >> 7));
        break;
    case 5:
        for (k = 0; k < 8; k++) { to[k] = k == (int)(which >> 5) ? NULL : &sizes[k]; }
        n = tensor_check_n(x, s, to, (int)(which >> 3) % 9);
        PROMISE(n == tensor_error_code(), "code %d, error %d", n, tensor_error_code());
        break;
    case 6: looked_at(tensor_div_mode(x, tensor_ones(1), s)); break;
    case 7: looked_at(tensor_linalg_norm(x, s, NULL, 0, (int)(which >> 7))); break;
    case 8: looked_at(tensor_linalg_matrix_norm(x, s, -2, -1, (int)(which >> 7))); break;
    case 9: looked_at(tensor_linalg_cond(x, s)); break;
    case 10:
        qr = tensor_linalg_qr(x, s);
        PROMISE(!qr.r || tensor_is_poison(qr.r) == !tensor_ok(), "%s", tensor_error_text());
        break;
    case 11:
        list[0] = list[1] = list[2] = tensor_arange(0, 3, 1, TENSOR_F32);
        tensor_meshgrid(list, (int)(which % 4), s, out);
        break;
    case 12: looked_at(tensor_quantile_dim(tensor_to(x, TENSOR_F32), tensor_full(0.3, 1), -1, 0, s)); break;
    case 13:
        tensor_set_isa(s);
        tensor_clear_error();
        tensor_set_isa(NULL);
        break;
    case 14: looked_at(nn_get(net, s)); break;
    case 15: nn_get_child(net, s); break;
    case 16: // a name that goes into a file and comes back
        index = nn_safetensors_format((const char *const *)&s, &x, 1, NULL, 0);
        if (!tensor_is_poison(index)) {
            nn_safetensors_t *r = nn_safetensors_parse(tensor_data(index), (size_t)tensor_numel(index));
            PROMISE(r && strcmp(nn_safetensors_name(r, 0), s) == 0, "a name comes back otherwise: %s",
                    tensor_error_text());
            nn_safetensors_close(r);
        }
        break;
    default: // a text of the program in an error's text
        tensor_raise(TENSOR_ERR_SHAPE, s);
        snprintf(room, sizeof room, "%.200s", tensor_error_text());
        tensor_to_string(x, room, which);
        nn_to_string(net, room, which);
        break;
    }
    free(s);
}
FUZZ_TARGET(strings, strings_setup)
