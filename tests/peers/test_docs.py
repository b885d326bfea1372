#!/usr/bin/env python3
"""The documents tell the truth: their commands are run, their outputs compared, their links and targets looked up.

In a Markdown file of the project
  ```sh     is run, block after block in one shell, with what is staged in PATH; every block must succeed;
  ```text   behind it is what it prints: each line in this order, where numbers and "..." stand for any;
  ```ini    is a configuration that `verbatim devices` accepts;
  ```shell  is not run (it builds the project, or needs another machine), but its make targets must exist.
"""
import os
import re
import shutil
import subprocess
import tempfile

import peers

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
FENCE = re.compile(r'^```(\w+)\n(.*?)^```$', re.M | re.S)


def markdown_files():
    for folder, dirs, files in os.walk(TOP):
        dirs[:] = [d for d in dirs if not d.startswith(('build', '.')) or d == 'build-aux']
        for name in files:
            if name.endswith('.md'):
                yield os.path.join(folder, name)


def line_pattern(line):
    """A line of a document as a pattern: its words exactly, any blanks, any numbers."""
    words = []
    for word in line.split():
        pattern = ''
        for part in re.split(r'(\.\.\.|\d+(?:\.\d+)?)', word):
            if part == '...':
                pattern += r'\S.*'
            elif re.fullmatch(r'\d+\.\d+', part):
                pattern += r'[\d.]+'
            else:
                pattern += re.escape(part)
        words.append(pattern)
    return r'\s+'.join(words)


def compare(name, documented, said):
    position = 0
    for line in documented.splitlines():
        if not line.strip():
            continue
        match = re.compile(line_pattern(line)).search(said, position)
        if not match:
            raise peers.Failure(f'{name}: no line like {line!r} (in this place) in\n{said}')
        position = match.end()


def tools(folder):
    """Where `verbatim` is. With a sanitizer its run-time must be the first library of what that starts. gdb hangs with it."""
    staged = os.path.join(peers.stage(), 'bin')
    preload = peers.sanitizer(peers.stage())
    if not preload:
        return staged
    wrapper = os.path.join(folder, 'sanitized', 'verbatim')
    os.mkdir(os.path.dirname(wrapper))
    with open(wrapper, 'w', encoding='utf-8') as script:
        script.write('#!/bin/sh\nexport ASAN_OPTIONS=detect_leaks=0\n'
                     f'[ "$1" = gdb ] || exec env LD_PRELOAD={preload} {staged}/verbatim "$@"\n'
                     f'exec {staged}/verbatim "$@"\n')
    os.chmod(wrapper, 0o755)
    return f'{os.path.dirname(wrapper)}:{staged}'


def run_blocks(path, folder):
    """Run a document's sh blocks; each leaves its output between two marks."""
    with open(path, encoding='utf-8') as text:
        blocks = FENCE.findall(text.read())
    name = os.path.relpath(path, TOP)
    port = peers.Port()
    listening = f'grep -q ":{port.number:04X} [0-9A-F]*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null'
    script, documented = ['set -e'], []
    for i, (kind, body) in enumerate(blocks):
        if kind == 'sh':
            # the programs' default port may be in use on this machine
            body = re.sub(r'\b(ibv_\w+_pingpong|ib_\w+_(?:bw|lat))\b(?=.*\n)', rf'\1 -p {port.number}', body)
            # on a busy machine a server may take longer than a reader would wait
            body = re.sub(r'^sleep 1$', f'until {listening}; do sleep 0.05; done', body, flags=re.M)
            script += [f'echo "=== {i}"', body]
            follows = blocks[i + 1] if i + 1 < len(blocks) else ('', '')
            documented.append((i, follows[1] if follows[0] == 'text' else ''))
    if not documented:
        return
    env = peers.bare_env(HOME=folder, PKG_CONFIG_PATH=os.path.join(peers.stage(), 'lib', 'pkgconfig'))
    env['PATH'] = tools(folder) + ':' + env['PATH']
    os.symlink(os.path.join(TOP, 'docs'), os.path.join(folder, 'docs'))
    shutil.copytree(os.path.join(TOP, 'samples'), os.path.join(folder, 'samples'))  # they are built where they lie
    done = subprocess.run(['bash', '-c', '\n'.join(script)], cwd=folder, env=env, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=160, check=False)
    if done.returncode != 0:
        raise peers.Failure(f'{name}: exit code {done.returncode} after\n{done.stdout}')
    for i, expected in documented:
        said = re.search(rf'^=== {i}\n(.*?)(?=^=== |\Z)', done.stdout, re.M | re.S)[1]
        compare(name, expected, said)


def check_configs(path, folder):
    with open(path, encoding='utf-8') as text:
        blocks = FENCE.findall(text.read())
    for i, (kind, body) in enumerate(blocks):
        if kind != 'ini':
            continue
        config = os.path.join(folder, f'block-{i}.conf')
        with open(config, 'w', encoding='utf-8') as out:
            out.write(body)
        done = subprocess.run([os.path.join(peers.stage(), 'bin', 'verbatim'), 'devices', '--config', config],
                              capture_output=True, text=True, timeout=30, check=False)
        if done.returncode != 0:
            raise peers.Failure(f'{os.path.relpath(path, TOP)}: its configuration is refused: {done.stderr}')


def check_links(path):
    with open(path, encoding='utf-8') as text:
        content = text.read()
    name = os.path.relpath(path, TOP)
    for target in re.findall(r'\]\(([^)#]+)[^)]*\)', content):
        if '://' not in target and not os.path.exists(os.path.join(os.path.dirname(path), target)):
            raise peers.Failure(f'{name}: link to {target}, which does not exist')
    with open(os.path.join(TOP, 'Makefile'), encoding='utf-8') as makefile:
        targets = set(re.findall(r'^([a-z-]+):', makefile.read(), re.M))
    code = '\n'.join(re.findall(r'`([^`\n]+)`', content) + [body for _, body in FENCE.findall(content)])
    for target in re.findall(r'^\s*make ([a-z][a-z-]*)\b', code, re.M):
        if target not in targets and not target.startswith('bench-'):
            raise peers.Failure(f'{name}: make {target}, which the Makefile does not have')


def check_settings():
    """Every environment variable and every key that the sources read is in docs/config.md and in a man page."""
    variables, keys = set(), set()
    for folder, _, files in os.walk(os.path.join(TOP, 'src')):
        for name in files:
            if name.endswith('.c'):
                with open(os.path.join(folder, name), encoding='utf-8') as text:
                    source = text.read()
                variables |= set(re.findall(r'getenv\("(VERBATIM_\w+)"', source))
                keys |= set(re.findall(r'^\t{ \.name = "(\w+)",\s+\.parse = ', source, re.M))
    if len(variables) < 5 or len(keys) < 10:
        raise peers.Failure(f'found only {variables} and {keys}: this test is broken')
    for path, pattern, names in (('docs/config.md', '`{}`', variables | keys), ('man/verbatim.1.md', '**{}**', variables),
                                 ('man/verbatim.conf.5.md', '**{}', keys)):
        with open(os.path.join(TOP, path), encoding='utf-8') as text:
            content = text.read()
        missing = [name for name in sorted(names) if pattern.format(name) not in content]
        if missing:
            raise peers.Failure(f'{path} does not know {" ".join(missing)}')


def run():
    check_settings()
    # Debian's programs, as the documents start them, cannot load a library with ThreadSanitizer: they crash.
    runs = 'libtsan' not in (peers.sanitizer(peers.stage()) or '')
    for path in markdown_files():
        with tempfile.TemporaryDirectory() as folder:
            check_links(path)
            check_configs(path, folder)
            if runs:
                run_blocks(path, folder)


peers.main(run)
