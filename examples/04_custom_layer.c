// 04_custom_layer.c - a layer and a model of one's own: Listing 1 of the PyTorch paper (NeurIPS 2019)
//
//   class LinearLayer(Module):                     class FullBasicModel(nn.Module):
//     def __init__(self, in_sz, out_sz):             def __init__(self):
//       super().__init__()                             super().__init__()
//       t1 = torch.randn(in_sz, out_sz)                self.conv = nn.Conv2d(1, 128, 3)
//       self.w = nn.Parameter(t1)                      self.fc = LinearLayer(128, 10)
//       t2 = torch.randn(out_sz)
//       self.b = nn.Parameter(t2)                    def forward(self, x):
//                                                      t1 = self.conv(x)
//     def forward(self, activations):                  t2 = nn.functional.relu(t1)
//       t = torch.mm(activations, self.w)              t3 = self.fc(t2)
//       return t + self.b                              return nn.functional.softmax(t3)
//
// Build: make build/04_custom_layer && build/04_custom_layer
// Output:
//   FullBasicModel(
//     (conv): Conv2d(1, 128, kernel_size=(3, 3), stride=(1, 1))
//     (fc): LinearLayer()
//   )
//   2570 parameters
//   output [4, 10], each row sums to
//   tensor([1.0000, 1.0000, 1.0000, 1.0000])
//   loss fell below a tenth in 50 steps: yes
#include "tensor_nn.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct linear_layer_t {
    nn_module_t base;                  // first member: a linear_layer_t * is an nn_module_t *
    tensor_t *w, *b;
} linear_layer_t;

static tensor_t *linear_layer_forward(nn_module_t *m, tensor_t *activations) {
    linear_layer_t *self = (linear_layer_t *)m;
    tensor_t *t = tensor_mm(activations, self->w);
    return tensor_add(t, self->b);
}

static void linear_layer_init(linear_layer_t *self, int64_t in_sz, int64_t out_sz) {
    nn_module_init(&self->base, "LinearLayer", linear_layer_forward, NULL);
    self->w = nn_parameter(&self->base, "w", tensor_randn(in_sz, out_sz));
    self->b = nn_parameter(&self->base, "b", tensor_randn(out_sz));
}

typedef struct full_basic_model_t {
    nn_module_t base, *conv;
    linear_layer_t fc;
} full_basic_model_t;

static tensor_t *full_basic_model_forward(nn_module_t *m, tensor_t *x) {
    full_basic_model_t *self = (full_basic_model_t *)m;
    tensor_t *t1 = nn_forward(self->conv, x);
    tensor_t *t2 = tensor_relu(t1);
    tensor_t *t3 = nn_forward(&self->fc.base, tensor_flatten(t2, 1, -1));
    return tensor_softmax(t3, -1);
}

static void full_basic_model_init(full_basic_model_t *self) {
    nn_module_init(&self->base, "FullBasicModel", full_basic_model_forward, NULL);
    self->conv = nn_child(&self->base, "conv", nn_conv2d(1, 128, 3));
    linear_layer_init(&self->fc, 128, 10);
    nn_child(&self->base, "fc", &self->fc.base);
}

int main(void) {
    tensor_manual_seed(1);
    full_basic_model_t model;
    full_basic_model_init(&model);
    nn_print(&model.base);
    printf("%d parameters\n", (int)nn_num_parameters(&model.base));

    tensor_t *y = nn_forward(&model.base, tensor_randn(4, 1, 3, 3));       // conv leaves 1 x 1 of 3 x 3
    printf("output [%d, %d], each row sums to\n", (int)tensor_size(y, 0), (int)tensor_size(y, 1));
    tensor_print(tensor_detach(tensor_sum_dim(y, 1, 0)));

    // The parameters inside train like any other.
    nn_optimizer_t *opt = nn_sgd(&model.base, .lr = 0.1);
    tensor_t *x = tensor_randn(16, 1, 3, 3), *label = tensor_randint(0, 10, 16, 1);
    double first = 0, last = 0;
    tensor_scope_t scope = tensor_scope_begin();
    for (int step = 0; step < 50; step++, tensor_scope_reset(scope)) {
        tensor_t *likely = tensor_gather(nn_forward(&model.base, x), 1, label);
        tensor_t *loss = tensor_neg(tensor_mean(tensor_log(tensor_add_scalar(likely, 1e-6))));
        nn_zero_grad(opt);
        tensor_backward(loss);
        nn_step(opt);
        last = tensor_item(loss);
        if (step == 0) { first = last; }
    }
    tensor_scope_end(scope);
    printf("loss fell below a tenth in 50 steps: %s\n", last < first / 10 ? "yes" : "no");
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "04_custom_layer: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}
