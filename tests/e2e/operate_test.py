"""Starting, watching and stopping the daemon, on the demo model."""

import json
import os
import signal
import subprocess
import tempfile
import unittest

import programs

ENDLESS = ("--prompt", "In the beginning", "--max-tokens", "6000", "--ignore-eos")


def run_daemon(*arguments):
    return subprocess.run(
        [programs.DAEMON, *arguments],
        capture_output=True,
        text=True,
        timeout=programs.PATIENCE_S,
        check=False,
    )


def idle_state(daemon):
    """The state once no request is left, else None. It trails the answers by up to a step."""
    state = daemon.json("state")
    is_idle = state["requests"]["finished"] > 0 and state["requests"]["running"] == 0
    return state if is_idle else None


class State(unittest.TestCase):
    def test_tells_tiers_and_groups(self):
        with programs.Daemon() as daemon:
            daemon.json("generate", "--prompt", "In the beginning", "--max-tokens", "8")
            state = programs.wait_for("the request is over", lambda: idle_state(daemon))
            self.assertEqual(state["model"]["name"], "demo")
            self.assertEqual(state["requests"]["finished"], 1)
            tier = state["device_tier"]
            owned = tier["index_bytes"] + tier["draft_bytes"] + tier["row_cache_bytes"]
            free = tier["chunks_free"] * tier["chunk_bytes"]
            self.assertLessEqual(owned + free, tier["pool_bytes"])
            self.assertLessEqual(state["host_tier"]["used_bytes"], state["host_tier"]["pool_bytes"])
            self.assertEqual([g["first_layer"] for g in state["groups"]], [0, 1, 2, 6])
            self.assertEqual(sum(g["num_layers"] for g in state["groups"]), 8)
            for group in state["groups"]:
                self.assertGreater(group["rows_selected"], 0)
                # Several queries of a step may select the same row.
                distinct = group["rows_hit"] + group["rows_missed"]
                self.assertGreaterEqual(group["rows_selected"], distinct)
                self.assertGreater(distinct, 0)
            self.assertEqual(
                state["rows_selected"], sum(g["rows_selected"] for g in state["groups"])
            )
            table = daemon.client("state")
            self.assertEqual(table.returncode, 0)
            self.assertIn("host-fetch fraction", table.stdout.decode())

    def test_a_killed_client_frees_its_memory(self):
        with programs.Daemon() as daemon:
            idle = daemon.json("state")
            client = daemon.start_generate(*ENDLESS)
            self.assertTrue(client.stdout.read(1))
            running = daemon.json("state")
            self.assertEqual(running["requests"]["running"], 1)
            self.assertGreater(
                running["host_tier"]["used_bytes"], idle["host_tier"]["used_bytes"]
            )
            client.send_signal(signal.SIGKILL)
            client.communicate()
            for tier, owned in (("host_tier", "used_bytes"), ("device_tier", "index_bytes")):
                programs.wait_for(
                    f"{tier}.{owned} is what it was before the request",
                    lambda t=tier, o=owned: daemon.json("state")[t][o] == idle[t][o],
                )
            self.assertEqual(daemon.json("state")["requests"]["running"], 0)
            daemon.json("generate", "--prompt", "Amen", "--max-tokens", "2")


class Stop(unittest.TestCase):
    def test_sigterm_finishes_what_is_running_and_exits_zero(self):
        with programs.Daemon() as daemon:
            client = daemon.start_generate(
                "--prompt", "In the beginning", "--max-tokens", "5000", "--ignore-eos", "--json"
            )
            programs.wait_for(
                "the request runs", lambda: daemon.json("state")["requests"]["running"] == 1
            )
            daemon.signal(signal.SIGTERM)
            stdout, stderr = client.communicate(timeout=programs.PATIENCE_S)
            self.assertEqual(client.returncode, 0, stderr)
            self.assertIn(b'"completion_tokens":5000', stdout)
            self.assertEqual(daemon.wait(), 0)
            self.assertIn("draining", daemon.log())

    def test_a_draining_daemon_refuses_new_requests(self):
        with programs.Daemon() as daemon:
            client = daemon.start_generate(*ENDLESS)
            self.assertTrue(client.stdout.read(1))
            daemon.signal(signal.SIGTERM)
            programs.wait_for("draining", lambda: daemon.json("state")["draining"])
            refused = daemon.client("generate", "--prompt", "x")
            self.assertEqual(refused.returncode, 1)
            self.assertIn("UNAVAILABLE: the server is draining", refused.stderr.decode())
            client.kill()
            client.communicate()
            self.assertEqual(daemon.wait(), 0)

    def test_the_drain_timeout_ends_what_is_still_running(self):
        with programs.Daemon("server.drain_timeout=100ms") as daemon:
            client = daemon.start_generate(*ENDLESS)
            self.assertTrue(client.stdout.read(1))
            daemon.signal(signal.SIGTERM)
            _, stderr = client.communicate(timeout=programs.PATIENCE_S)
            self.assertEqual(client.returncode, 1)
            self.assertIn("UNAVAILABLE", stderr.decode())
            self.assertEqual(daemon.wait(), 0)

    def test_a_second_signal_stops_at_once(self):
        with programs.Daemon("server.drain_timeout=inf") as daemon:
            client = daemon.start_generate(*ENDLESS)
            self.assertTrue(client.stdout.read(1))
            daemon.signal(signal.SIGINT)
            programs.wait_for("draining", lambda: "draining" in daemon.log())
            daemon.signal(signal.SIGINT)
            self.assertEqual(daemon.wait(), 0)
            self.assertIn("stopping without draining", daemon.log())
            client.communicate(timeout=programs.PATIENCE_S)
            self.assertEqual(client.returncode, 1)

    def test_a_draining_daemon_is_alive_and_not_ready(self):
        with programs.Daemon() as daemon:
            client = daemon.start_generate(*ENDLESS)
            self.assertTrue(client.stdout.read(1))
            daemon.signal(signal.SIGTERM)
            programs.wait_for("not ready", lambda: daemon.http("/readyz")[0] == 503)
            self.assertEqual(daemon.http("/readyz")[1], "not ready: draining\n")
            self.assertEqual(daemon.http("/healthz")[0], 200)
            client.kill()
            client.communicate()
            self.assertEqual(daemon.wait(), 0)


class Metrics(unittest.TestCase):
    def test_a_scrape_counts_what_the_requests_did(self):
        with programs.Daemon() as daemon:
            self.assertEqual(daemon.http("/readyz"), (200, "ready\n"))
            self.assertEqual(daemon.metric("dhisparse_ready"), 1)
            self.assertEqual(daemon.metric("dhisparse_requests_finished_total"), 0)
            prompt = "In the beginning God created the heaven and the earth."
            got = daemon.json("generate", "--prompt", prompt, "--max-tokens", "12", "--ignore-eos")
            programs.wait_for("the request is over", lambda: idle_state(daemon))
            value = daemon.metric
            self.assertEqual(value("dhisparse_requests_finished_total", 'reason="length"'), 1)
            self.assertEqual(value("dhisparse_prompt_tokens_total"), got["prompt_tokens"])
            self.assertEqual(value("dhisparse_generation_tokens_total"), 12)
            self.assertEqual(value("dhisparse_time_to_first_token_seconds_count"), 1)
            self.assertEqual(value("dhisparse_inter_token_latency_seconds_count"), 11)
            self.assertEqual(value("dhisparse_request_queue_time_seconds_count"), 1)
            self.assertEqual(value("dhisparse_rows_selected_total"), got["rows_selected"])
            state = daemon.json("state")
            self.assertEqual(value("dhisparse_steps_total"), state["steps"])
            self.assertEqual(value("dhisparse_step_seconds_count"), state["steps"])
            chunks = state["device_tier"]["pool_bytes"] / state["device_tier"]["chunk_bytes"]
            self.assertEqual(value("dhisparse_device_chunks"), chunks)

    def test_a_stop_string_is_a_proper_end(self):
        with programs.Daemon() as daemon:
            arguments = ("--prompt", "In the beginning", "--temperature", "0")
            whole = daemon.json("generate", *arguments, "--max-tokens", "40")["text"]
            daemon.json("generate", *arguments, "--max-tokens", "400", "--stop", whole[5:12])
            programs.wait_for(
                "it is counted",
                lambda: daemon.metric("dhisparse_requests_finished_total", 'reason="stop"') == 1,
            )
            cancelled = daemon.metric("dhisparse_requests_finished_total", 'reason="cancelled"')
            self.assertEqual(cancelled, 0)

    def test_the_state_can_be_watched(self):
        with programs.Daemon() as daemon:
            watcher = subprocess.Popen(
                [programs.CLIENT, "state", "--server", daemon.address, "--watch=0.05"],
                stdout=subprocess.PIPE,
                text=True,
            )
            tables = 0
            while tables < 3:
                line = watcher.stdout.readline()
                self.assertNotEqual(line, "", "the watcher ended")
                self.assertNotIn("\x1b", line, "no terminal, no control codes")
                tables += line.startswith("model     demo")
            watcher.kill()
            watcher.communicate()


class Reload(unittest.TestCase):
    def setUp(self):
        file = tempfile.NamedTemporaryFile("w", suffix=".yaml", delete=False)
        file.close()
        self.config = file.name
        self.addCleanup(os.unlink, self.config)
        self.write("")

    def write(self, sections):
        model = os.path.join(programs.SOURCE_DIR, "tests", "models", "demo")
        with open(self.config, "w", encoding="utf-8") as file:
            file.write(f"schema_version: 1\nmodel: {{path: {model}}}\n{sections}")

    def test_sighup_changes_the_running_daemon(self):
        with programs.Daemon(config=self.config) as daemon:
            client = daemon.start_generate(*ENDLESS)
            self.assertTrue(client.stdout.read(1))
            self.write("residency: {mode: fixed}\nscheduler: {max_running: 3}\n")
            daemon.signal(signal.SIGHUP)
            programs.wait_for(
                "the new limit holds", lambda: daemon.json("state")["requests"]["max_running"] == 3
            )
            self.assertEqual(daemon.json("state")["residency_mode"], "fixed")
            self.assertIn("reload: residency.mode: adaptive -> fixed", daemon.log())
            self.assertEqual(daemon.metric("dhisparse_config_reloads_total", 'result="ok"'), 1)
            self.assertIsNone(client.poll(), "what runs goes on")
            client.kill()
            client.communicate()

    def test_reload_answers_with_what_changed_or_why_nothing_did(self):
        with programs.Daemon(config=self.config) as daemon:
            self.assertEqual(daemon.json("reload"), {"changes": []})
            self.write("scheduler: {tpot_target: 50ms}\n")
            self.assertEqual(
                daemon.json("reload")["changes"],
                [{"key": "scheduler.tpot_target", "before": "inf", "after": "50ms"}],
            )
            self.write("scheduler: {tpot_target: soon}\n")
            failed = daemon.client("reload")
            self.assertEqual(failed.returncode, 1)
            self.assertIn("INVALID_ARGUMENT", failed.stderr.decode())
            self.assertIn("scheduler.tpot_target", failed.stderr.decode())
            self.write("device: {memory: 32MiB}\nscheduler: {max_running: 2}\n")
            failed = daemon.client("reload")
            self.assertIn("FAILED_PRECONDITION", failed.stderr.decode())
            self.assertIn("device.memory: 64MiB -> 32MiB", failed.stderr.decode())
            self.assertEqual(daemon.json("state")["requests"]["max_running"], 32)
            self.assertEqual(daemon.metric("dhisparse_config_reloads_total", 'result="failed"'), 2)
            self.assertEqual(daemon.metric("dhisparse_config_last_reload_successful"), 0)
            self.assertFalse(daemon.json("state")["reloads"]["is_last_successful"])


class Plan(unittest.TestCase):
    def plan(self, *overrides):
        settings = [part for setting in overrides for part in ("--set", setting)]
        return programs.run_client("plan", "--config", programs.DEMO_CONFIG, *settings, "--json")

    def test_tells_how_many_requests_fit_without_a_daemon(self):
        done = self.plan("host.pool=64MiB", "device.memory=16MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        plan = json.loads(done.stdout)
        self.assertEqual(list(plan["modes"]), ["adaptive", "fixed", "resident"])
        for contexts in plan["modes"].values():
            self.assertEqual([c["tokens"] for c in contexts], [1024, 2048, 4096, 8192])
            counts = [c["max_requests"] for c in contexts]
            self.assertEqual(counts, sorted(counts, reverse=True))
        self.assertGreater(
            plan["modes"]["adaptive"][3]["max_requests"],
            plan["modes"]["resident"][3]["max_requests"],
        )
        self.assertEqual(plan["modes"]["resident"][3]["limit"], "whole_rows")
        table = programs.run_client("plan", "--config", programs.DEMO_CONFIG)
        self.assertEqual(table.returncode, 0)
        self.assertIn("scheduler.max_running is 32", table.stdout.decode())

    def test_the_daemon_admits_what_was_planned(self):
        settings = ("host.pool=8MiB", "scheduler.max_running=64", "kv.prefix_cache=false")
        contexts = json.loads(self.plan(*settings).stdout)["modes"]["adaptive"]
        expected = contexts[0]["max_requests"]
        self.assertEqual(contexts[0]["limit"], "host_pool")
        self.assertGreater(expected, 0)
        with programs.Daemon(*settings) as daemon:
            prompt = ("--prompt", "In the beginning", "--ignore-eos")
            size = daemon.json("generate", *prompt, "--max-tokens", "1")["prompt_tokens"]
            clients = [
                daemon.start_generate(*prompt, "--max-tokens", str(1024 - size))
                for _ in range(expected + 1)
            ]

            def counts():
                requests = daemon.json("state")["requests"]
                return requests["running"], requests["queued"], requests["peak_running"]

            programs.wait_for("all but one run", lambda: counts() == (expected, 1, expected))
            for client in clients:
                client.kill()
                client.communicate()

    def test_names_what_is_wrong_with_the_configuration(self):
        done = self.plan("device.memory=plenty")
        self.assertEqual(done.returncode, 1)
        self.assertIn("--set device.memory=plenty", done.stderr.decode())


class Start(unittest.TestCase):
    def test_check_config_reports_all_mistakes_at_once(self):
        config = (
            "schema_version: 1\n"
            "model:\n"
            "  pth: /somewhere\n"
            "device:\n"
            "  memory: plenty\n"
            "residency:\n"
            "  mode: sometimes\n"
            "scheduler:\n"
            "  max_running: -3\n"
            "  max_running: 4\n"
            "server:\n"
            "  reflection: yes\n"
        )
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(config)
            file.flush()
            done = run_daemon("--config", file.name, "--check-config")
            self.assertEqual(done.returncode, 1)
            for place in ("3:3", "5:11", "7:9", "10:3", "12:15"):
                self.assertIn(f"{file.name}:{place}: ", done.stderr)
            self.assertIn("path", done.stderr)  # what `pth` was meant to be

    def test_check_config_accepts_the_demo(self):
        done = run_daemon("--config", programs.DEMO_CONFIG, "--check-config")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_print_config_shows_values_and_their_sources(self):
        done = run_daemon(
            "--config", programs.DEMO_CONFIG, "--set", "residency.mode=fixed", "--print-config"
        )
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"mode: fixed\s+# --set")
        self.assertRegex(done.stdout, r"memory: 64MiB\s+# .*demo\.yaml:\d+:\d+")
        self.assertRegex(done.stdout, r"max_running: \d+\s+# default")

    def test_version_and_usage(self):
        version = run_daemon("--version")
        self.assertEqual(version.returncode, 0)
        self.assertRegex(version.stdout, r"^dhisparsed \d+\.\d+\.\d+\n$")
        self.assertEqual(run_daemon().returncode, 2)
        self.assertEqual(run_daemon("--config").returncode, 2)

    def test_a_port_in_use_is_named(self):
        with programs.Daemon() as daemon:
            done = run_daemon(
                "--config", programs.DEMO_CONFIG, "--set", f"server.listen={daemon.address}",
                "--set", "server.metrics=off",
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"cannot listen on {daemon.address}", done.stderr)

    def test_a_missing_model_is_named(self):
        missing = os.path.join(programs.SOURCE_DIR, "no-such-model")
        done = run_daemon(
            "--config", programs.DEMO_CONFIG, "--set", f"model.path={missing}",
            "--set", "server.metrics=off",
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn(missing, done.stderr)


if __name__ == "__main__":
    programs.main()
