"""Measure an unchanged PyTorch training script. After an error in this code, training continues.

hooks                    hooks PyTorch where a step's activities begin and end
hot_hooks                the hooks that are called in every step, written for speed
patches                  wraps functions of PyTorch safely
discovery                finds the trained models, and the number of samples in a batch
event_buffer             buffers the hooks' events, to process the events of many steps at once
observer                 derives steps, phases and samples from events; its parts are timeline,
                         pauses, step_optimizers, sample_counts
forward_uses             tells which forwards a step uses; stretches, which parts of sequences
ledgers                  counts steps and samples apart from the observer, to compare them; uses
                         loader_passes, weight_changes
certificate              records sketches of gradients and updates, if requested
manual_updates           detects steps without an optimizer
ddp_models               watches the last gradients of DDP models, reads DDP's own statistics
facts                    gathers facts that explain bad scaling; uses fingerprints, call_counters
profiler                 traces a few steps with PyTorch's own profiler, if requested
loaders                  times the training data loader after training, if requested
private_api              has fallbacks where a version of PyTorch lacks a private name
"""
