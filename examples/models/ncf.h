// ncf.h - neural collaborative filtering, NeuMF (He et al. 2017) as in MLPerf v0.5, whose names these are
//
//   static const int64_t widths[] = {256, 256, 128, 64};
//   nn_module_t *net = ncf_new(138493, 26744, 64, widths, 4, 0);      x [2, N] i64: users, items
#ifndef NCF_H
#define NCF_H

#include "model.h"

typedef struct ncf_t {
    nn_module_t base, *mf_user, *mf_item, *mlp_user, *mlp_item, *mlp, *final;
} ncf_t;

static tensor_t *ncf_forward(nn_module_t *m, tensor_t *x) {
    ncf_t *self = (ncf_t *)m;
    tensor_t *user = tensor_select(x, 0, 0), *item = tensor_select(x, 0, 1);
    tensor_t *mf = tensor_mul(nn_forward(self->mf_user, user), nn_forward(self->mf_item, item));
    tensor_t *h = tensor_cat(1, nn_forward(self->mlp_user, user), nn_forward(self->mlp_item, item));
    h = nn_forward(self->mlp, h);
    return tensor_squeeze(nn_forward(self->final, tensor_cat(1, mf, h)), 1);
}

typedef struct ncf_mlp_t {
    nn_module_t base;
    tensor_t *weight[8], *bias[8];
    int count;
} ncf_mlp_t;

static tensor_t *ncf_mlp_forward(nn_module_t *m, tensor_t *x) {
    ncf_mlp_t *self = (ncf_mlp_t *)m;
    for (int i = 0; i < self->count; i++) {
        x = tensor_linear_relu(x, self->weight[i], self->bias[i]);
    }
    return x;
}

//   users, items  sizes of the tables
//   factors       width of the two tables that are multiplied
//   widths        n (2 to 9) of the perceptron, from the two tables side by side to its result
//   sparse        1 = gradients of the tables by rows, for nn_sparse_adam
//   -> module, x [2, N] i64, y [N] logits;  errors SHAPE, OUT_OF_MEMORY
MODEL_FN nn_module_t *ncf_new(int64_t users, int64_t items, int64_t factors, const int64_t *widths, int n,
                              int sparse) {
    if (n < 2 || n > 9) {
        (void)tensor_raise(TENSOR_ERR_SHAPE, "ncf_new: the widths are 2 to 9");
        return NULL;
    }
    ncf_t *self = (ncf_t *)model_new(sizeof *self, "NeuMF", ncf_forward);
    ncf_mlp_t *mlp = (ncf_mlp_t *)model_new(sizeof *mlp, "ModuleList", ncf_mlp_forward);
    if (!self || !mlp) { return NULL; }
    const int64_t half = widths[0] / 2;
    self->mf_user = nn_child(&self->base, "mf_user_embed", nn_embedding(users, factors, .sparse = sparse));
    self->mf_item = nn_child(&self->base, "mf_item_embed", nn_embedding(items, factors, .sparse = sparse));
    self->mlp_user = nn_child(&self->base, "mlp_user_embed", nn_embedding(users, half, .sparse = sparse));
    self->mlp_item = nn_child(&self->base, "mlp_item_embed", nn_embedding(items, half, .sparse = sparse));
    nn_named_list_t tables = nn_named_parameters(&self->base);
    for (int64_t i = 0; i < tables.count; i++) { nn_init_normal_(tables.item[i].tensor, 0, 0.01); }
    for (int i = 1; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i - 1);
        nn_module_t *layer = nn_child(&mlp->base, name, nn_linear(widths[i - 1], widths[i]));
        mlp->weight[mlp->count] = nn_init_xavier_uniform_(nn_get(layer, "weight"), 1);
        mlp->bias[mlp->count++] = nn_get(layer, "bias");
    }
    self->mlp = nn_child(&self->base, "mlp", &mlp->base);
    self->final = nn_child(&self->base, "final", nn_linear(widths[n - 1] + factors, 1));
    const double bound = sqrt(3.0 / (double)(widths[n - 1] + factors));
    nn_init_uniform_(nn_get(&self->base, "final.weight"), -bound, bound);
    return &self->base;
}

#endif
