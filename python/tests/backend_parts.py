"""What the files of programs for the torch.compile backend share (backend_language.py, backend_images.py, backend_fields.py, backend_writing.py, backend_recipes.py: code as people
bring it; backend_snippets.py). PROGRAMS: name -> a function of the device that gives (callable, arguments), as MODELS of backend_models.py.
"""

import torch

PROGRAMS = {}
ROUGH = {"under_autocast", "mixed_types_written_out", "promotions", "int4_weights"}  # of 16 bits: fused operators keep f32 between them
WIDTH, HEADS = 32, 4


def model(make):
    assert make.__name__ not in PROGRAMS
    PROGRAMS[make.__name__] = make
    return make


def data(*shape, device, grad=True, dtype=torch.float32):
    x = torch.randn(*shape, device=device).to(dtype)
    return x.requires_grad_() if grad else x


def whole(count, end, device):
    return torch.arange(count, device=device) * 7919 % end
