// 05_gan.c - two models trained against each other: Listing 2 of the PyTorch paper (NeurIPS 2019)
//
//   discriminator = create_discriminator()
//   generator = create_generator()
//   optimD = optim.Adam(discriminator.parameters())
//   optimG = optim.Adam(generator.parameters())
//
//   def step(real_sample):
//     # (1) Update Discriminator
//     errD_real = loss(discriminator(real_sample), real_label)
//     errD_real.backward()
//     fake = generator(get_noise())
//     errD_fake = loss(discriminator(fake.detach()), fake_label)
//     errD_fake.backward()
//     optimD.step()
//     # (2) Update Generator
//     errG = loss(discriminator(fake), real_label)
//     errG.backward()
//     optimG.step()
//
// The real samples are numbers drawn from a normal distribution with mean 4 and deviation 0.5.
//
// Build: make build/05_gan && build/05_gan
// Output:
//   real: mean 4, deviation 0.5
//   fake: mean within 0.5 of it: yes, deviation between 0.1 and 1: yes
#include "tensor_nn.h"

#include <math.h>
#include <stdio.h>

enum { BATCH = 128, NOISE = 8 };

static nn_module_t *create_discriminator(void) {
    return nn_sequential(nn_linear(1, 32), nn_leaky_relu(0.2), nn_linear(32, 32), nn_leaky_relu(0.2),
                         nn_linear(32, 1));
}
static nn_module_t *create_generator(void) {
    return nn_sequential(nn_linear(NOISE, 32), nn_relu(), nn_linear(32, 32), nn_relu(), nn_linear(32, 1));
}
static tensor_t *get_noise(void) { return tensor_randn(BATCH, NOISE); }
static tensor_t *get_real(void) {
    return tensor_add_scalar(tensor_mul_scalar(tensor_randn(BATCH, 1), 0.5), 4);
}
static tensor_t *loss(tensor_t *logits, tensor_t *label) {
    return tensor_binary_cross_entropy_with_logits(logits, label);
}

static nn_module_t *discriminator, *generator;
static nn_optimizer_t *optimD, *optimG;
static tensor_t *real_label, *fake_label;

static void step(tensor_t *real_sample) {
    // (1) Update Discriminator
    nn_zero_grad(optimD);
    tensor_t *errD_real = loss(nn_forward(discriminator, real_sample), real_label);
    tensor_backward(errD_real);
    tensor_t *fake = nn_forward(generator, get_noise());
    tensor_t *errD_fake = loss(nn_forward(discriminator, tensor_detach(fake)), fake_label);
    tensor_backward(errD_fake);
    nn_step(optimD);
    // (2) Update Generator
    nn_zero_grad(optimG);
    tensor_t *errG = loss(nn_forward(discriminator, fake), real_label);
    tensor_backward(errG);
    nn_step(optimG);
}

int main(void) {
    tensor_manual_seed(1);
    discriminator = create_discriminator();
    generator = create_generator();
    optimD = nn_adam(discriminator, .lr = 2e-3, .beta1 = 0.5);
    optimG = nn_adam(generator, .lr = 1e-3, .beta1 = 0.5);
    real_label = tensor_ones(BATCH, 1);
    fake_label = tensor_zeros(BATCH, 1);

    tensor_scope_t scope = tensor_scope_begin();
    for (int i = 0; i < 2000; i++, tensor_scope_reset(scope)) { step(get_real()); }
    tensor_scope_end(scope);

    tensor_t *fake = tensor_detach(nn_forward(generator, get_noise()));
    double mean = tensor_item(tensor_mean(fake)), deviation = tensor_item(tensor_std(fake, 1));
    printf("real: mean 4, deviation 0.5\n");
    printf("fake: mean within 0.5 of it: %s, deviation between 0.1 and 1: %s\n",
           fabs(mean - 4) < 0.5 ? "yes" : "no", deviation > 0.1 && deviation < 1 ? "yes" : "no");
    if (fflush(stdout) || ferror(stdout)) {
        (void)tensor_raise(TENSOR_ERR_IO, "05_gan: cannot write to stdout");
    }
    return tensor_shutdown() != 0;
}
