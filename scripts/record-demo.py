#!/usr/bin/env python3
"""Records docs/images/terminal.svg: the first minute with Tallystone, as an animated terminal.

Starts `tallystone dev` in an empty folder, runs the commands of SCREENS against it, and draws what they print. Nothing is
made up, and nothing but Python's standard library is needed. Run it after the output of a command has changed:

    scripts/record-demo.py [PROGRAM] [PICTURE]   # default: target/release/tallystone docs/images/terminal.svg
"""
import html
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Each screen: seconds on display, then commands. A command that ends in "^C" runs for 3 s and is then interrupted. NOW is the
# time when its screen begins.
SCREENS = [
    (7, ["tallystone queue create flights --exclusive tail --lease 10s"]),
    (8, [
        "tallystone msg enqueue flights --id UA1545 --meta tail=N14228 --priority 1357035300000",
        "tallystone msg enqueue flights --id UA1714 --meta tail=N24211 --priority 1357036140000",
        "tallystone msg enqueue flights --id UA1121 --meta tail=N14228 --priority 1357052400000",
        "tallystone msg explain flights UA1121",
    ]),
    (7, ["""tallystone work flights --name hangar-1 --concurrency 4 --exec 'echo "$TALLYSTONE_KEY flies $TALLYSTONE_ID"' ^C"""]),
    (8, ["tallystone msg trace UA1121", "tallystone check flights"]),
    (8, [
        "tallystone counter add departures 3 --token flight-42 --at NOW",
        "tallystone counter add departures 3 --token flight-42 --at NOW",
        "tallystone counter get departures",
    ]),
]
COLUMNS, ROWS, WIDE, HIGH, MARGIN, BAR = 128, 16, 7.6, 19, 18, 34
BACKGROUND, TEXT, DIM, PROMPT, COMMAND = "#0f172a", "#cbd5e1", "#64748b", "#22c55e", "#f8fafc"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port, process):
    for _ in range(300):
        if process.poll() is not None:
            sys.exit(f"tallystone dev ended with {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.1)
    sys.exit("tallystone dev does not answer")


def output_of(program, command, env):
    """What a command prints, on stdout and stderr together."""
    interrupted = command.endswith("^C")
    arguments = [str(program), *shlex.split(command.removesuffix("^C"))[1:]]
    process = subprocess.Popen(arguments, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if interrupted:
        time.sleep(3)
        process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=60)
    if process.returncode:
        sys.exit(f"{command}: exit status {process.returncode}\n{text}")
    return text.rstrip().splitlines()


def record(program):
    """All screens: lists of lines, a command as ("$", its text)."""
    with tempfile.TemporaryDirectory() as data:
        port, counters = free_port(), free_port()
        env = {
            **os.environ,
            "TALLYSTONE_SERVER": f"http://127.0.0.1:{port}",
            "TALLYSTONE_COUNTERS": f"http://127.0.0.1:{counters}",
        }
        listen = ["--listen", f"127.0.0.1:{port}", "--counters-listen", f"127.0.0.1:{counters}", "--data-dir", data]
        dev = subprocess.Popen([program, "dev", *listen], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, dev)
            wait_for(counters, dev)
            time.sleep(2)
            screens = []
            for seconds, commands in SCREENS:
                lines = []
                now = datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
                for command in commands:
                    command = command.replace("NOW", now)
                    if "trace" in command:
                        time.sleep(4)  # history is written after the fact
                    lines.append(("$", command.removesuffix(" ^C")))
                    lines += output_of(program, command, env)
                screens.append((seconds, lines[:ROWS]))
            return screens
        finally:
            dev.send_signal(signal.SIGINT)
            dev.wait(timeout=60)


def line_of(line, row):
    """One row: its text, and each mark (prompt, dot) once more in colour at its own place."""
    is_command = isinstance(line, tuple)
    text = "$ " + line[1] if is_command else line
    if len(text) > COLUMNS:
        text = text[: COLUMNS - 1] + "…"
    colour = COMMAND if is_command else DIM if re.match(r"\s*│|As of", text) else TEXT
    marks = [0] if is_command else [at for at, character in enumerate(text) if character in "●✓"]
    plain = "".join(" " if at in marks else character for at, character in enumerate(text))
    return text_at(plain, 0, row, colour) + "".join(text_at(text[at], at, row, PROMPT) for at in marks)


def text_at(text, column, row, colour):
    """Text with a fixed length, so that columns align in any monospaced font."""
    column += len(text) - len(text.lstrip())
    text = text.strip()
    return (
        f'<text x="{MARGIN + column * WIDE:.1f}" y="{BAR + MARGIN + row * HIGH}" fill="{colour}" '
        f'textLength="{len(text) * WIDE:.1f}" lengthAdjust="spacingAndGlyphs" xml:space="preserve">{html.escape(text)}</text>'
    )


def picture(screens):
    width, height = round(COLUMNS * WIDE + 2 * MARGIN), BAR + ROWS * HIGH + MARGIN
    total = sum(seconds for seconds, _ in screens)
    style, groups, begin = [], [], 0
    for index, (seconds, lines) in enumerate(screens):
        first, last = 100 * begin / total, 100 * (begin + seconds) / total
        # Where animations are off, only the first screen shows.
        style.append(f".s{index}{{opacity:{int(index == 0)};animation:k{index} {total}s step-end infinite}}")
        hidden = "" if index == 0 else "0%{opacity:0}"
        ends = "" if last >= 100 else f"{last:.2f}%{{opacity:0}}"
        style.append(f"@keyframes k{index}{{{hidden}{first:.2f}%{{opacity:1}}{ends}}}")
        rows = [line_of(line, row) for row, line in enumerate(lines) if line]
        groups.append(f'<g class="s{index}">' + "\n".join(rows) + "</g>")
        begin += seconds
    dots = "".join(f'<circle cx="{22 + 18 * i}" cy="17" r="5.5" fill="{c}"/>' for i, c in enumerate(["#ef4444", "#f59e0b", "#22c55e"]))
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-size="12.5" '
        'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,DejaVu Sans Mono,monospace">',
        "<title>A terminal: create a queue, enqueue, explain, work, trace, count</title>",
        "<style>" + "".join(style) + "@media(prefers-reduced-motion:reduce){g{animation:none!important}}</style>",
        f'<rect width="{width}" height="{height}" rx="10" fill="{BACKGROUND}"/>{dots}',
        *groups,
        "</svg>",
        "",
    ])


def main():
    program = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "target/release/tallystone").resolve()
    target = Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "docs/images/terminal.svg")
    screens = record(program)
    target.write_text(picture(screens))
    for _, lines in screens:
        print(*("$ " + line[1] if isinstance(line, tuple) else line for line in lines), "", sep="\n")


if __name__ == "__main__":
    main()
