"""A tokenizer that is easy to reason about: one token a character."""

from __future__ import annotations

START, END, USER, ANSWER = 1, 2, 3, 4
MODEL = {"vocab_size": 70_000, "max_position": 4096, "stop_ids": [END]}


class CharacterTokenizer:
    """One token a character, and a chat template with a start token before everything."""

    def encode(self, text: str) -> list[int]:
        """Code points, moved behind the special tokens."""
        return [ord(character) + 10 for character in text]

    def apply_chat_template(
        self, messages: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> list[int]:
        """START, then USER role, content and END for each message, then ANSWER."""
        ids = [START]
        for message in messages:
            if message["role"] == "tool":
                raise ValueError("the template knows no tools")
            ids += [USER, *self.encode(f"{message['role']}\n{message['content']}"), END]
        return [*ids, ANSWER] if add_generation_prompt else ids
