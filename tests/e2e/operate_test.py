"""Starting, watching and stopping the daemon, on the demo model."""

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
            owned = tier["index_bytes"] + tier["row_cache_bytes"]
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

    def test_sighup_does_not_stop_it(self):
        with programs.Daemon() as daemon:
            daemon.signal(signal.SIGHUP)
            programs.wait_for("the signal is logged", lambda: "SIGHUP" in daemon.log())
            daemon.json("generate", "--prompt", "Amen", "--max-tokens", "2")


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
                "--config", programs.DEMO_CONFIG, "--set", f"server.listen={daemon.address}"
            )
            self.assertEqual(done.returncode, 1)
            self.assertIn(f"cannot listen on {daemon.address}", done.stderr)

    def test_a_missing_model_is_named(self):
        missing = os.path.join(programs.SOURCE_DIR, "no-such-model")
        done = run_daemon("--config", programs.DEMO_CONFIG, "--set", f"model.path={missing}")
        self.assertEqual(done.returncode, 1)
        self.assertIn(missing, done.stderr)


if __name__ == "__main__":
    programs.main()
