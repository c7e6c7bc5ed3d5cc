"""PyTorch over wiresum: a DDP communication hook, and the backend "wiresum" for `init_process_group`.

Only this package imports torch. Importing it does not, so that torch's own start-up can load `registration`.
"""
