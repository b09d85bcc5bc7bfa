"""Write tests/data/tokenizer_expected.json: token ids that two other programs give to 200 strings.

Both read models/SmolLM2-135M-Instruct.Q4_1.gguf (`python -m backends.pack demo` puts it there):

    pip install transformers==5.17.0 torch==2.13.0 gguf==0.19.0
    python tests/data/make_tokenizer_fixture.py transformers
    pip install llama-cpp-python==0.3.36
    python tests/data/make_tokenizer_fixture.py llama_cpp

The two run one after the other, each in an environment of its own, and fill their own column.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
GGUF = HERE.parents[1] / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
OUT = HERE / "tokenizer_expected.json"

DIGITS = [
    *("0", "7", "42", "1234567890", "3.14159", "1,000,000", "-17", "+49 30 901820", "1e-9"),
    *("0x1F4A9", "2024-02-29", "12:34:56", "v1.2.3-rc4", "50%", "$19.99", "€5", "1/2 + 3/4 = 5/4"),
    *("Room 101", "in 2023 there were 12 of them", "x1 x2 x10", "10 000", "a1b2c3", "H2O", "CO2"),
    *(
        "  5",
        "a  12",
        "\t7",
        "line\n9",
        "\n\n10",
        "5  6  7",
        "١٢٣",
        "１２３",
        "Ⅷ",
        "½ cup",
        "x² + y³",
    ),
    *("No. 5 is alive", "1st 2nd 3rd 4th", "3x + 4 = 19", "100km/h", "7 ", " 7", "  7  ", "9\n9"),
]
JAPANESE = [
    *(
        "こんにちは",
        "日本語のテキスト",
        "カタカナとひらがな",
        "東京都千代田区1-1",
        "。、「」",
        "ｶﾀｶﾅ",
    ),
    *(
        "今日は2024年5月3日です。",
        "彼は「はい」と言った。",
        "漢字 と 空白",
        "価格は￥1,200（税込）",
    ),
    *(
        "要約してください：\n次の文章を",
        "ありがとうございます！！",
        "プログラミング言語Pythonの基礎",
    ),
    *("吾輩は猫である。名前はまだ無い。", "メール: taro@example.jp", "１０時３０分", "々〆ヶ"),
]
OTHER_SCRIPTS = [
    *("Привет, мир", "Ελληνικά", "שלום עולם", "مرحبا بالعالم", "नमस्ते दुनिया", "안녕하세요 세계"),
    *(
        "你好，世界",
        "สวัสดีชาวโลก",
        "Tiếng Việt",
        "naïve café résumé",
        "Straße Übergröße",
        "İstanbul ı",
    ),
    *(
        "e\u0301 und é",
        "ﬁ ligature",
        "Ａｆｕｌｌｗｉｄｔｈ",
        "ж\u200dж",
        "a\u00adb",
        "x\u00a0y",
        "\ufeffbom",
    ),
]
EMOJI = [
    *(
        "😀",
        "👍🏽",
        "👨‍👩‍👧‍👦",
        "🇯🇵🇩🇪",
        "❤️",
        "☕ or 🍵?",
        "🎉🎉🎉",
        "1️⃣",
        "🏳️‍🌈",
        "ok 👌 fine",
        "𝒳 math",
        "𠮷野家",
    ),
    *("♥♦♣♠", "→ ← ↔", "★★★☆☆", "∑ x² ≤ ∞", "\U0001f9d1\u200d\U0001f4bb codes"),
]
CODE = [
    "def f(x):\n    return x ** 2\n",
    "for (int i = 0; i < 10; ++i) { sum += a[i]; }",
    "if x != None and y >= 3:\n\tprint(f'{x:>10}')",
    "SELECT * FROM users WHERE id = 42 AND name LIKE '%o''Brien%';",
    '<div class="a b" id=c>&nbsp;text</div>',
    '{"key": [1, 2.5, null, true], "s": "\\u00e9\\n"}',
    "#include <vector>\nstd::vector<int> v{1,2,3};",
    "git commit -m 'fix: #123' && git push --force-with-lease",
    "C:\\Users\\me\\file.txt",
    "/usr/local/bin:/usr/bin",
    "https://example.com/a?b=c&d=%20#frag",
    "x = y if z else w  # comment",
    "/* multi\n * line\n */",
    "fn main() -> Result<(), Box<dyn Error>> { Ok(()) }",
    "\\begin{equation} E = mc^2 \\end{equation}",
    "```python\nprint('hi')\n```",
    "a&&b||!c ? d : e",
    "__init__ __name__ == '__main__'",
    "camelCase snake_case kebab-case SCREAMING_CASE",
    "lambda *args, **kwargs: None",
    "    four\n        eight\n    four",
    "\t\ttabs\n\t\t\tmore",
    "array[0][1]->field.method()",
    "0b1010 | 0o17 ^ ~0xff",
]
SPECIAL = [
    *("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|>user\nHi<|im_end|>\n"),
    *("text<|im_end|>text", "<|im_end|><|im_end|>", " <|im_start|> ", "<|im_start|>assistant\n"),
    *("<repo_name>x<file_sep>y", "<|im_start", "|im_end|>", "<| im_end |>", "<jupyter_start>"),
    *("<issue_start>", "<gh_stars>5", "<s> </s> <unk> [PAD]", "<|IM_END|>", "<|eot_id|>"),
    "<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\nAdd 2 and 3.<|im_end|>\n",
]
WHITESPACE = [
    *(" ", "  ", "   ", "    ", "\n", "\n\n", "\n\n\n", "\t", "\t\t", " \n", "\n ", " \t ", "\r\n"),
    *(
        "a b",
        "a  b",
        "a   b",
        " a",
        "  a",
        "a ",
        "a  ",
        "a\nb",
        "a\n\nb",
        "a \n b",
        "a\tb",
        "a\r\nb",
    ),
    *(
        "   lead and trail   ",
        "x" + " " * 20 + "y",
        "x\n" + " " * 8 + "y",
        "\u3000全角",
        "a\u2003b",
    ),
    *("one\n\n\n\ntwo", "\x0b\x0c", "end with newline\n", "  \n  \n  z"),
]
ENGLISH = [
    *(
        "Hello, world!",
        "I'm can't we'll they've he'd you're it's",
        "I'M CAN'T WE'LL",
        "don’t ‘quote’",
    ),
    *(
        "The quick brown fox jumps over the lazy dog.",
        "Wait... what?!",
        "(a) [b] {c} <d>",
        "a-b–c—d",
    ),
    *(
        "antidisestablishmentarianism",
        "zzzzzzzzzzzzzzzz",
        "aAaAaAaA",
        "!!!???...",
        "---",
        "====",
        "___",
    ),
    *(
        "'s 't 're",
        "''''",
        '"""',
        "e.g., i.e., etc.",
        "Dr. Smith's 3 dogs' toys",
        "A",
        "a",
        "",
        "I",
    ),
    *("Lorem ipsum dolor sit amet, consectetur", "@user #tag $var %mod ^xor &and *ptr", "U.S.A."),
    "Summarize the following text in 3 bullet points:\n\n- one\n- two\n",
]
TEXTS = [*DIGITS, *JAPANESE, *OTHER_SCRIPTS, *EMOJI, *CODE, *SPECIAL, *WHITESPACE, *ENGLISH]


def transformers_ids() -> tuple[str, list[list[int]]]:
    """Ids of the tokenizer that transformers builds from the GGUF file."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(str(GGUF.parent), gguf_file=GGUF.name)
    return transformers.__version__, [tokenizer.encode(text) for text in TEXTS]


def llama_cpp_ids() -> tuple[str, list[list[int]]]:
    """Ids of llama.cpp, which knows the file's pre-tokenizer by name."""
    import llama_cpp

    model = llama_cpp.Llama(str(GGUF), vocab_only=True, verbose=False)
    ids = [model.tokenize(text.encode(), add_bos=False, special=True) for text in TEXTS]
    return llama_cpp.__version__, ids


def main() -> None:
    """Fill the column of the program named on the command line."""
    programs = {"transformers": transformers_ids, "llama_cpp": llama_cpp_ids}
    if len(sys.argv) != 2 or sys.argv[1] not in programs:
        sys.exit(f"{__doc__}\nusage: make_tokenizer_fixture.py {' | '.join(programs)}")
    name = sys.argv[1]
    version, ids = programs[name]()
    old = json.loads(OUT.read_text()) if OUT.exists() else {"versions": {}, "cases": []}
    columns = {case["text"]: case for case in old["cases"]}
    cases = [
        {**columns.get(text, {}), "text": text, name: found}
        for text, found in zip(TEXTS, ids, strict=True)
    ]
    lines = ",\n".join(json.dumps(case, sort_keys=True) for case in cases)
    versions = json.dumps({**old["versions"], name: version}, sort_keys=True)
    OUT.write_text(f'{{"versions": {versions}, "cases": [\n{lines}\n]}}\n')
    print(f"Wrote {len(cases)} cases to {OUT}.")


if __name__ == "__main__":
    main()
