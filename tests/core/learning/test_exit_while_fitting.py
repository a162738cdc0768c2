"""A process that ends while contexts are fitted in a thread."""

import subprocess
import sys
import textwrap

SLOW = "import time\ntime.sleep(2)\n"
SCRIPT = textwrap.dedent(
    """
    import sys

    import numpy as np

    from wiserouter import Budget, Growing, Model, Price, WiseRouter
    from wiserouter.prompts.contexts import Contexts

    fit = Contexts.fit


    def slow_fit(*args, **settings):
        import slow  # as scikit-learn is, at the first fit
        import concurrent.futures.process  # which refuses to be imported where the process ends

        return fit(*args, **settings)


    class Handler:  # as LiteLLM's, which imports where it is deleted
        def __del__(self):
            import slow


        Contexts.fit = slow_fit
    growing = Growing(n_contexts=4, first_after=20, per_context=5, background=True)
    router = WiseRouter([Model("a", Price(1e-6, 1e-6)), Model("b", Price(1e-6, 1e-6))], growing=growing, seed=0)
    router.start(Budget(1.0, 1000))
    rng = np.random.default_rng(0)
    while "slow" not in sys.modules:
        router.charge(router.decide(embedding=rng.normal(size=8)), cost_usd=1e-6)
    print("served")
    handler = Handler()
    handler.itself = handler
    del handler  # garbage, found when the interpreter closes
    """
)


def test_the_process_ends(tmp_path):
    (tmp_path / "slow.py").write_text(SLOW)
    script = tmp_path / "served.py"
    script.write_text(SCRIPT)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "served\n", "")
