# %%
import numpy as np

import tetris_sim as ts

rod = {
    "grid": {"shape": [100], "size": ["1 m"]},
    "model": {"type": "heat", "material": "copper"},
    "initial": {"type": "expression", "expression": "100*sin(pi*x/Lx)"},
    "boundaries": {"x": {"type": "dirichlet", "value": "0 degC"}},
    "time": {"t_end": "10 min"},
    "output": {
        "fields": {"every": "1 min"},
        "probes": [{"name": "middle", "at": ["0.5 m"], "every": "10 s"}],
    },
}
result = ts.run(rod)
# %%
result.plot().save("picture.png")
# %%
result.probes["middle"].tail()
# %%
np.save("answer.npy", result.field())
