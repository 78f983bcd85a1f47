"""How does a slab's state live on a GPU, and how does it get in and out?

Begin with `passes.py`: the ways to go from one array to the other. `stepper.py` holds a slab
that stays in GPU memory, `streamed.py` advances slabs that pass through it; `planes.py` has halos
that stay on the GPU until a neighbour takes them, `mailbox.py` those that another process takes.
"""
