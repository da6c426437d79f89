"""options.py - the options of C beside the parameters of PyTorch: every member of every args struct has the name of a
parameter of PyTorch's function, follows a rule of docs/pytorch.md (no_x, x_h, x_w), or stands in its table of names that
differ; and the table has nothing else. Skipped where python3 has no torch.  Last line: "N passed, N failed".
"""
import inspect
import re
import sys

try:
    import torch
    from torch import nn, optim
    from torch.nn import functional as F
    from torch.nn.utils import parametrizations
    from torch.optim import lr_scheduler
    from torch.utils.data import DataLoader
except ImportError:
    print("skipped 1350 tests of the names of options: no python3 with torch")
    print("0 passed, 0 failed")
    sys.exit(0)

OPTIMIZERS = [optim.SGD, optim.Adam, optim.RMSprop, optim.Adagrad, optim.Adadelta, optim.Adamax, optim.NAdam, optim.RAdam,
              optim.ASGD, optim.Rprop, optim.Adafactor, optim.Muon]
# Struct without _args_t -> what it is in PyTorch: functions, or names of ATen where a function has no signature.
# None: a function that PyTorch does not have.
OF = {
    "tensor_allclose": ["allclose"],
    "tensor_searchsorted": ["searchsorted"], "tensor_linalg_lu_solve": ["linalg_lu_solve"],
    "tensor_linalg_tolerance": ["linalg_pinv", "linalg_matrix_rank"], "tensor_multinomial": ["multinomial"],
    "tensor_rearrange": None, "tensor_check": None, "nn_load": None,
    "tensor_embedding": [F.embedding], "tensor_embedding_bag": [F.embedding_bag], "tensor_layer_norm": [F.layer_norm],
    "tensor_batch_norm": [F.batch_norm], "tensor_instance_norm": [F.instance_norm], "tensor_group_norm": [F.group_norm],
    "tensor_rms_norm": [F.rms_norm], "tensor_local_response_norm": [F.local_response_norm],
    "tensor_conv": ["conv2d"], "tensor_conv_transpose": ["conv_transpose2d"], "tensor_columns": [F.fold, F.unfold],
    "tensor_max_pool": ["max_pool2d"], "tensor_avg_pool": ["avg_pool2d"], "tensor_max_unpool": [F.max_unpool2d],
    "tensor_interpolate": [F.interpolate], "tensor_grid_sample": [F.grid_sample],
    "tensor_scaled_dot_product_attention": ["scaled_dot_product_attention"], "tensor_rnn": ["lstm", nn.RNNBase, nn.RNNCell],
    "tensor_cross_entropy": [F.cross_entropy], "tensor_nll_loss": [F.nll_loss], "tensor_mse_loss": [F.mse_loss],
    "tensor_l1_loss": [F.l1_loss], "tensor_smooth_l1_loss": [F.smooth_l1_loss], "tensor_huber_loss": [F.huber_loss],
    "tensor_binary_cross_entropy": [F.binary_cross_entropy],
    "tensor_binary_cross_entropy_with_logits": [F.binary_cross_entropy_with_logits], "tensor_kl_div": [F.kl_div],
    "tensor_margin_loss": [F.multi_margin_loss], "tensor_ranking_loss": [F.margin_ranking_loss],
    "tensor_triplet_margin_loss": [F.triplet_margin_loss],
    "tensor_triplet_margin_with_distance_loss": [F.triplet_margin_with_distance_loss],
    "tensor_gaussian_nll_loss": [F.gaussian_nll_loss], "tensor_poisson_nll_loss": [F.poisson_nll_loss],
    "tensor_ctc_loss": [F.ctc_loss],
    "nn_linear": [nn.Linear], "nn_conv": [nn.Conv2d], "nn_conv_transpose": [nn.ConvTranspose2d],
    "nn_pool": [nn.MaxPool2d, nn.AvgPool2d], "nn_fractional_max_pool": [nn.FractionalMaxPool2d],
    "nn_upsample": [nn.Upsample], "nn_columns": [nn.Fold, nn.Unfold], "nn_layer_norm": [nn.LayerNorm],
    "nn_multihead_attention": [nn.MultiheadAttention], "nn_attention": [nn.MultiheadAttention.forward],
    "nn_transformer_layer": [nn.TransformerEncoderLayer, nn.TransformerDecoderLayer],
    "nn_transformer": [nn.TransformerEncoderLayer.forward, nn.TransformerDecoderLayer.forward],
    "nn_transformer_net": [nn.Transformer], "nn_embedding": [nn.Embedding], "nn_embedding_bag": [nn.EmbeddingBag],
    "nn_adaptive_log_softmax_with_loss": [nn.AdaptiveLogSoftmaxWithLoss], "nn_rnn": [nn.RNNBase, nn.RNNCell],
    "nn_recurrent": [nn.LSTM.forward], "nn_batch_norm": [nn.BatchNorm2d], "nn_sync_batch_norm": [nn.SyncBatchNorm],
    "nn_instance_norm": [nn.InstanceNorm2d], "nn_group_norm": [nn.GroupNorm], "nn_rms_norm": [nn.RMSNorm],
    "nn_local_response_norm": [nn.LocalResponseNorm], "nn_weight_norm": [parametrizations.weight_norm],
    "nn_spectral_norm": [parametrizations.spectral_norm], "nn_kaiming": [nn.init.kaiming_normal_],
    "nn_sgd": [optim.SGD], "nn_adam": [optim.Adam], "nn_sparse_adam": [optim.SparseAdam], "nn_rmsprop": [optim.RMSprop],
    "nn_adagrad": [optim.Adagrad], "nn_adadelta": [optim.Adadelta], "nn_adamax": [optim.Adamax], "nn_nadam": [optim.NAdam],
    "nn_radam": [optim.RAdam], "nn_asgd": [optim.ASGD], "nn_rprop": [optim.Rprop], "nn_adafactor": [optim.Adafactor],
    "nn_muon": [optim.Muon], "nn_lbfgs": [optim.LBFGS], "nn_group": OPTIMIZERS,
    "nn_clip_grad_norm": [nn.utils.clip_grad_norm_], "nn_get_total_norm": [nn.utils.get_total_norm],
    "nn_set_one_cycle_lr": [lr_scheduler.OneCycleLR], "nn_set_cyclic_lr": [lr_scheduler.CyclicLR], "nn_data_loader": [DataLoader],
}
HEADERS = open("tensor.h").read() + open("tensor_nn.h").read()
passed = failed = 0


def check(good, text):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(text)


def macro(name):
    """The text of a macro of several lines."""
    return re.search(r"#define %s\b(?:\([^)]*\))?((?:.*\\\n)*.*)\n" % name, HEADERS).group(1).replace("\\\n", " ")


def members(body):
    names = []
    body = body.replace("NN__OPTIMIZER_ARGS", macro("NN__OPTIMIZER_ARGS"))
    if "NN__GROUP_OPTIONS(" in body:
        names = re.findall(r"X\(\w+, (\w+)\)", macro("NN__GROUP_OPTIONS"))
        body = re.sub(r"#.*", "", body).replace("NN__GROUP_OPTIONS(NN__GROUP_MEMBER)", "")
    body = re.sub(r"//.*|\bTENSOR_INIT\b", "", body)
    for declaration in filter(str.strip, body.split(";")):
        function = re.search(r"\(\*(\w+)\)", declaration)
        names += [function.group(1)] if function else [re.findall(r"\w+", part)[-1] for part in declaration.split(",")]
    return [n for n in names if n not in ("site_", "options_are_named_")]


def parameters(of):
    if isinstance(of, str):
        schemas = torch._C._jit_get_schemas_for_operator("aten::" + of)
        names = {a.name for schema in schemas for a in schema.arguments}
        return names | ({"input"} if "self" in names else set())        # what Python calls it
    return set(inspect.signature(of).parameters)


structs = dict(re.findall(r"typedef struct (\w+)_args_t \{(.*?)\n\} \1_args_t;", HEADERS, re.S))
check(len(structs) >= 85, "only %d args structs were found" % len(structs))
for name in sorted(set(structs) ^ set(OF)):
    check(False, "%s_args_t: tests/options.py and the headers do not agree that it exists" % name)

# The table: | `member` | `parameter` or words | `struct` `struct` .. | why |
page = open("docs/pytorch.md").read()
table = page[page.index("| C | PyTorch | args struct | why |"):].split("\n\n")[0]
rows = {}
for line in table.splitlines()[2:]:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    check(len(cells) == 4 and all(cells), "docs/pytorch.md: not a whole row: " + line)
    for member in re.findall(r"`(\w+)`", cells[0]):
        for struct in re.findall(r"`(\w+)`", cells[2]):
            check((struct, member) not in rows, "docs/pytorch.md: %s of %s twice" % (member, struct))
            rows[struct, member] = re.findall(r"`(?:len\()?(\w+)[^`]*`", cells[1])

for name in sorted(set(structs) & set(OF)):
    if OF[name] is None:
        continue
    there = set().union(*map(parameters, OF[name]))
    ours = members(structs[name])
    for member in ours:
        whole = re.sub(r"_[hw]$", "", member)
        same = member in there or (member.startswith("no_") and member[3:] in there)
        sized = whole != member and whole in ours
        if same or sized:
            check((name, member) not in rows, "docs/pytorch.md: %s of %s does not differ" % (member, name))
            continue
        check((name, member) in rows, "docs/pytorch.md: the table lacks %s of %s; PyTorch has %s" %
              (member, name, ", ".join(sorted(there - set(ours)))))
        for parameter in rows.get((name, member), []):
            check(parameter in there, "docs/pytorch.md: %s of %s: PyTorch has no %s" % (member, name, parameter))
for name, member in rows:
    check(name in structs and member in members(structs.get(name, "")), "docs/pytorch.md: %s has no %s" % (name, member))
print("%d passed, %d failed" % (passed, failed))
sys.exit(failed != 0)
