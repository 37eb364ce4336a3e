"""Loops: every function that plans itself again on a clock goes on after an exception. A new one has to be listed here.

A loop is found in the source: a function that `call_later` or `call_soon` gets, and that plans itself, directly or
through functions of its class.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
FIRST: Final = "it plans itself before it does anything that can raise"
FINALLY: Final = "it plans itself in a `finally`"
EACH: Final = "each object has a guard, and nothing else can raise"
ONE: Final = "it is about one object or request, which alone is concerned"
JUDGE: Final = "it raises on the clocks that it runs on: a judge does not go on after a fault of its own"
TESTED: Final = "tests inject exceptions: test_isolation.py, test_faults.py"
LOOPS: Final = {
    "harness/apiserver/controllers/event_expiry.py EventExpiry._expire": EACH,
    "harness/apiserver/controllers/nodes.py Nodes._check_leases": FIRST,
    "harness/apiserver/controllers/work_queue.py WorkQueue._run": TESTED,
    "harness/apiserver/storage/watch.py Subscription._bookmark": FIRST,
    "harness/apiserver/streams/line.py Line._poll": ONE,
    "harness/apiserver/transport/connection.py Connection._serve": ONE,
    "harness/apiserver/transport/inprocess.py InProcessTransport.stream": ONE,
    "harness/apiserver/transport/large_requests.py LargeRequests._next": FINALLY,
    "harness/apiserver/verbs/logs.py _Follower._poll": ONE,
    "harness/audit/follower.py Follower._again": JUDGE,
    "harness/audit/follower.py Follower._watch": JUDGE,
    "harness/audit/ordering.py EventOrder._due": JUDGE,
    "harness/clusters/agents.py RunLease.renew": FIRST,
    "harness/clusters/fault_injection/transport.py FaultyTransport.stream": ONE,
    "harness/deviceplugin/daemon.py serve.attend": FIRST,
    "harness/deviceplugin/daemon.py serve.renew": FIRST,
    "harness/nodes/device_daemon.py DeviceDaemon._turn": FIRST,
    "harness/nodes/leases.py Leases._tick": FIRST,
    "harness/nodes/local_agent.py LocalAgent._attend": FIRST,
    "harness/nodes/local_agent.py LocalAgent._looked": FIRST,
    "harness/nodes/local_use.py LocalUse._sample": ONE,
    "harness/nodes/node_agent.py NodeAgent._prepare": ONE,
    "harness/nodes/node_agent.py NodeAgent._with_objects": ONE,
    "harness/nodes/runtimes/lifecycle.py LifecycleRuntime._launch": ONE,
    "harness/nodes/runtimes/probing.py _ProbeLoop._once": FIRST,
    "harness/nodes/runtimes/simulated.py SimulatedRuntime._ended": ONE,
    "harness/nodes/runtimes/simulated.py SimulatedRuntime._restarted": ONE,
    "harness/nodes/runtimes/supervised_process.py SupervisedProcess._ended": ONE,
    "harness/nodes/usage.py UsageReports._send": FIRST,
    "harness/nodes/writer.py Writer._again": ONE,
    "scheduler/api/clock.py Clock.attempt": TESTED,
    "scheduler/client/http.py HttpTransport._send_out": TESTED,
    "scheduler/client/informer.py Informer._reread": ONE,
    "scheduler/client/leader.py Elector._try": FIRST,
    "scheduler/client/rest.py Rest.send": ONE,
    "scheduler/core/groups/nominations.py GroupNominations._expire": ONE,
    "scheduler/core/groups/placed_members.py PlacedMembers._end_pause": FIRST,
    "scheduler/core/waking.py Waker._ring": FINALLY,
    "scheduler/descheduler/migration/controller.py MigrationController._arbitrate": EACH,
    "scheduler/descheduler/migration/controller.py MigrationController._scavenge": FIRST,
    "scheduler/descheduler/shell.py Shell._round": FIRST,
    "scheduler/koordlet/agent.py Agent._report": FIRST,
    "scheduler/koordlet/agent.py _every.due": FIRST,
    "scheduler/koordlet/nri.py Plugin._connect": FIRST,
    "scheduler/manager/profile_controller.py ProfileController._round": FIRST,
    "scheduler/manager/shell.py Manager._look_for_stale": FIRST,
    "scheduler/plugins/elasticquota/cache.py QuotaCache._grace_ended": ONE,
    "scheduler/plugins/elasticquota/controller.py QuotaController._tick": FIRST,
    "scheduler/plugins/elasticquota/profile_controller.py ProfileController._pass": FIRST,
    "scheduler/plugins/loadaware/cache.py LoadCache._ring": EACH,
    "scheduler/plugins/reservation/controller.py ReservationController._mark": ONE,
    "scheduler/shell/binding.py _evict.delete": ONE,
    "scheduler/shell/loop.py Shell._work": TESTED,
    "scheduler/shell/monitor.py Monitor._look": FIRST,
    "scheduler/webhooks/__main__.py serve_reviews.look": FIRST,
    "scheduler/yarn/operator.py Operator._round": FIRST,
}
CANNOT_RAISE: Final = frozenset({"cancel", "collection", "len", "monotonic", "now"})  # besides planning
PLANS: Final = ("call_later", "call_soon")
Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_called(call: ast.Call) -> str:
    func = call.func
    return func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""


def calls(node: ast.AST) -> Iterator[ast.Call]:
    return (candidate for candidate in ast.walk(node) if isinstance(candidate, ast.Call))


def planned(node: ast.AST) -> set[str]:
    """The names in the last arguments of `call_later` and `call_soon`."""
    ids: set[str] = set()
    for call in calls(node):
        if name_called(call) in PLANS and call.args:
            for part in ast.walk(call.args[-1]):
                if isinstance(part, ast.Attribute):
                    ids.add(part.attr)
                elif isinstance(part, ast.Name):
                    ids.add(part.id)
    return ids


def functions_in(scope: ast.AST) -> Iterator[Function]:
    """The functions that are defined in a scope, not those inside of these."""
    for node in ast.iter_child_nodes(scope):
        if isinstance(node, Function):
            yield node
        elif not isinstance(node, ast.ClassDef):
            yield from functions_in(node)


class Scope:
    """The functions of one class or function."""

    def __init__(self, scope: ast.AST) -> None:
        self.functions = {function.name: function for function in functions_in(scope)}
        self.plans = {name: planned(function) & set(self.functions) for name, function in self.functions.items()}

    def reached(self, name: str) -> set[str]:
        """The functions of the scope that run with `name`: it, and those that it calls."""
        names, left = {name}, [name]
        while left:
            for other in {name_called(call) for call in calls(self.functions[left.pop()])} & set(self.functions):
                if other not in names:
                    names.add(other)
                    left.append(other)
        return names

    def loops(self) -> Iterator[str]:
        for name in set[str]().union(*self.plans.values()):
            if any(name in self.plans[other] for other in self.reached(name)):
                yield name

    def plans_itself(self, node: ast.AST, name: str) -> bool:
        """Whether `name` is planned within `node`."""
        called = {name_called(call) for call in calls(node)} & set(self.functions) - {name}
        return name in planned(node) or any(
            name in self.plans[other] for each in called for other in self.reached(each)
        )


@cache
def all_loops() -> dict[str, tuple[Scope, str]]:
    scopes = {}
    for folder in ("scheduler", "harness"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if "tests" in path.parts or not any(word in text for word in PLANS):
                continue
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef | Function):
                    scope = Scope(node)
                    for name in scope.loops():
                        scopes[f"{path.relative_to(ROOT)} {node.name}.{name}"] = scope, name
    return scopes


def test_all_loops_are_listed() -> None:
    assert sorted(all_loops()) == sorted(LOOPS)


@pytest.mark.parametrize("loop", [name for name, how in LOOPS.items() if how == FIRST])
def test_a_loop_plans_itself_before_anything_can_raise(loop: str) -> None:
    scope, name = all_loops()[loop]
    for statement in scope.functions[name].body:
        if scope.plans_itself(statement, name):
            return
        raising = {name_called(call) for call in calls(statement)} - CANNOT_RAISE
        assert not raising, f"{loop} calls {raising} before it plans itself"
    pytest.fail(f"{loop} does not plan itself")


@pytest.mark.parametrize("loop", [name for name, how in LOOPS.items() if how in {FINALLY, EACH}])
def test_a_loop_has_its_guard_or_its_finally(loop: str) -> None:
    scope, name = all_loops()[loop]
    function = scope.functions[name]
    if LOOPS[loop] == FINALLY:
        tries = [node for node in ast.walk(function) if isinstance(node, ast.Try)]
        assert any(scope.plans_itself(statement, name) for node in tries for statement in node.finalbody)
    else:
        assert "guard" in {name_called(call) for call in calls(function)}
