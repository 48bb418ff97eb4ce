"""Generation through the two programs, on the demo model."""

import json
import os
import tempfile
import unittest

import programs

GREEDY = ("--temperature", "0")


class Generate(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = programs.Daemon()

    @classmethod
    def tearDownClass(cls):
        cls.daemon.__exit__()

    def generate(self, *arguments):
        return self.daemon.json("generate", *arguments)

    def test_json_has_what_was_generated_and_how(self):
        got = self.generate("--prompt", "In the beginning", "--max-tokens", "8", *GREEDY)
        self.assertEqual(len(got["token_ids"]), got["completion_tokens"])
        self.assertLessEqual(got["completion_tokens"], 8)
        self.assertEqual(got["finish_reason"], "length")
        self.assertGreater(got["prompt_tokens"], 0)
        self.assertGreater(got["time_to_first_token_s"], 0)
        self.assertGreater(got["time_per_output_token_s"], 0)
        self.assertGreater(got["rows_selected"], 0)
        self.assertGreaterEqual(got["rows_selected"], got["rows_fetched"])
        self.assertNotIn("logprobs", got)

    def test_text_is_that_of_the_tokens(self):
        got = self.generate("--prompt", "And God said", "--max-tokens", "20", *GREEDY)
        ids = ",".join(map(str, got["token_ids"]))
        self.assertEqual(self.daemon.json("detokenize", "--token-ids", ids)["text"], got["text"])

    def test_text_streams_what_json_prints(self):
        arguments = ("--prompt", "And God said", "--max-tokens", "20", *GREEDY)
        plain = self.daemon.client("generate", *arguments)
        self.assertEqual(plain.returncode, 0, plain.stderr)
        self.assertEqual(plain.stdout.decode(), self.generate(*arguments)["text"] + "\n")

    def test_text_arrives_before_the_end(self):
        with self.daemon.start_generate(
            "--prompt", "In the beginning", "--max-tokens", "4000", "--ignore-eos"
        ) as client:
            self.assertTrue(client.stdout.read(1))
            self.assertIsNone(client.poll())
            client.kill()

    def test_greedy_and_seeded_runs_repeat(self):
        sampled = ("--temperature", "1", "--seed", "11")
        for how in (GREEDY, sampled):
            arguments = ("--prompt", "The words of", "--max-tokens", "24", *how)
            first = self.generate(*arguments)["token_ids"]
            self.assertEqual(self.generate(*arguments)["token_ids"], first)

    def test_prompt_may_come_as_text_file_or_tokens(self):
        text = "And it came to pass"
        expected = self.generate("--prompt", text, "--max-tokens", "6", *GREEDY)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            from_file = self.generate("--prompt-file", file.name, "--max-tokens", "6", *GREEDY)
        piped = self.daemon.client(
            "generate", "--json", "--prompt-file", "-", "--max-tokens", "6", *GREEDY,
            stdin=text.encode(),
        )
        ids = self.daemon.json("tokenize", "--prompt", text)["token_ids"]
        from_ids = self.generate(
            "--token-ids", ",".join(map(str, ids)), "--max-tokens", "6", *GREEDY
        )
        self.assertEqual(expected["prompt_tokens"], len(ids))
        for got in (from_file, json.loads(piped.stdout), from_ids):
            self.assertEqual(got["token_ids"], expected["token_ids"])

    def test_a_stop_string_cuts_the_text(self):
        arguments = ("--prompt", "In the beginning", "--max-tokens", "40", *GREEDY)
        whole = self.generate(*arguments)
        stop = whole["text"][5:12]
        got = self.generate(*arguments, "--stop", "never in this text", "--stop", stop)
        self.assertEqual(got["finish_reason"], "stop")
        self.assertEqual(got["stop_string"], stop)
        self.assertEqual(got["text"], whole["text"][: whole["text"].index(stop)])
        kept = len(got["token_ids"])
        self.assertEqual(got["token_ids"], whole["token_ids"][:kept])
        self.assertEqual(got["completion_tokens"], kept)

    def test_a_stop_token_is_the_last_of_the_output(self):
        arguments = ("--prompt", "In the beginning", "--max-tokens", "30", *GREEDY)
        whole = self.generate(*arguments)["token_ids"]
        stop = whole[7]
        got = self.generate(*arguments, "--stop-token-id", str(stop))
        self.assertEqual(got["finish_reason"], "stop")
        self.assertEqual(got["stop_token_id"], stop)
        self.assertEqual(got["token_ids"], whole[: whole.index(stop) + 1])

    def test_logprobs_name_the_token_that_was_drawn(self):
        got = self.generate(
            "--prompt", "In the beginning", "--max-tokens", "5", "--top-logprobs", "3", *GREEDY
        )
        self.assertEqual([entry["token_id"] for entry in got["logprobs"]], got["token_ids"])
        for entry in got["logprobs"]:
            self.assertLess(entry["logprob"], 0)
            self.assertEqual(len(entry["top"]), 3)
            self.assertEqual(entry["top"][0]["token_id"], entry["token_id"])  # greedy
            self.assertAlmostEqual(entry["top"][0]["logprob"], entry["logprob"], places=5)

    def test_concurrent_requests_get_what_they_would_get_alone(self):
        prompts = ("In the beginning", "And the LORD said unto", "Blessed are", "Now these are")
        arguments = ("--max-tokens", "24", *GREEDY)
        alone = [self.generate("--prompt", prompt, *arguments)["text"] for prompt in prompts]
        clients = [self.daemon.start_generate("--prompt", p, *arguments) for p in prompts]
        together = [client.communicate()[0].decode() for client in clients]
        self.assertEqual(together, [text + "\n" for text in alone])

    def test_bad_requests_are_refused_and_the_daemon_goes_on(self):
        bad = [
            (("--prompt", ""), "INVALID_ARGUMENT: prompt: 0 tokens"),
            (("--prompt", b"\xff\xfe"), "INVALID_ARGUMENT: request:"),
            (("--token-ids", "4000000000"), "INVALID_ARGUMENT: token_ids[0]: 4000000000"),
            (("--prompt", "x", "--max-tokens", "100000"), "INVALID_ARGUMENT: max_tokens: 100000"),
            (("--prompt", "x", "--max-tokens", "0"), "max_tokens is 0"),
            (("--prompt", "x", "--temperature", "nan"), "temperature is nan"),
            (("--prompt", "x", "--temperature", "-1"), "temperature is -1"),
            (("--prompt", "x", "--top-p", "1.5"), "top_p is 1.5"),
            (("--prompt", "x", "--top-logprobs", "1000"), "top_logprobs is 1000"),
            (("--prompt", "x", "--stop", ""), "stop[0]: 0 bytes"),
            (("--prompt", "x", "--stop-token-id", "99999"), "stop_token_ids[0]: 99999"),
            (("--prompt", "word " * 9000, "--max-tokens", "1"), "prompt:"),
        ]
        for arguments, message in bad:
            with self.subTest(message=message):
                done = self.daemon.client("generate", "--json", *arguments)
                self.assertEqual(done.returncode, 1)
                self.assertIn(message, done.stderr.decode())
                self.assertEqual(done.stdout, b"")
        self.assertTrue(self.generate("--prompt", "Amen", "--max-tokens", "2")["token_ids"])
        self.assertIsNone(self.daemon.process.poll())

    def test_a_timeout_ends_the_request(self):
        done = self.daemon.client(
            "generate", "--prompt", "x", "--ignore-eos", "--timeout", "0.2", "--json"
        )
        self.assertEqual(done.returncode, 1)
        self.assertIn("DEADLINE_EXCEEDED", done.stderr.decode())

    def test_wrong_usage_is_status_two(self):
        for arguments in (
            (),
            ("nonsense",),
            ("generate",),
            ("generate", "--server", self.daemon.address),
            ("generate", "--server", self.daemon.address, "--prompt", "x", "--prompt-file", "y"),
            ("generate", "--server", self.daemon.address, "--prompt", "x", "--max-tokens", "-1"),
            ("generate", "--server", self.daemon.address, "--token-ids", "1,x"),
            ("state",),
        ):
            with self.subTest(arguments=arguments):
                self.assertEqual(programs.run_client(*arguments).returncode, 2)

    def test_a_failure_is_status_one_and_says_why(self):
        nobody = programs.run_client("state", "--server", "127.0.0.1:1")
        self.assertEqual(nobody.returncode, 1)
        self.assertIn("UNAVAILABLE", nobody.stderr.decode())
        missing = os.path.join(programs.SOURCE_DIR, "no-such-prompt")
        no_file = self.daemon.client("generate", "--prompt-file", missing)
        self.assertEqual(no_file.returncode, 1)
        self.assertIn(missing, no_file.stderr.decode())


if __name__ == "__main__":
    programs.main()
