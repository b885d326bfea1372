"""What the tests of dpacc share: calling it as a user would, expectations, and one TAP line per check.

A check is a function that takes an empty folder. Checks run two at a time; one that needs something the machine lacks
raises Skip.
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

STAGE = pathlib.Path(os.environ['VERBATIM_STAGE']).resolve()
BIN = STAGE / 'bin'
HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / 'peers'))
import peers  # noqa: E402  pylint: disable=wrong-import-position

# What a program that uses the staged libraries has to load first where these were built with a sanitizer.
PRELOAD = peers.sanitizer(STAGE)
SANITIZED = ['env', f'LD_PRELOAD={PRELOAD}', 'ASAN_OPTIONS=detect_leaks=0'] if PRELOAD else []

ADD = '''
#include <stdint.h>
__dpa_rpc__ uint64_t add(uint64_t a, uint64_t b) { return a + b; }
'''


class Failure(Exception):
    pass


class Skip(Exception):
    pass


def run(*command, cwd, env=None, **options):
    environment = {'PATH': os.environ['PATH'], 'LANG': 'C', 'VERBATIM_SHM_DIR': os.environ.get('VERBATIM_SHM_DIR', ''),
                   **(env or {})}
    return subprocess.run([str(word) for word in command], cwd=cwd, env=environment, capture_output=True, text=True,
                          errors='replace', timeout=120, check=False, **options)


def dpacc(cwd, *args, **options):
    return run(BIN / 'dpacc', *args, cwd=cwd, **options)


def expect(done, code=0, stdout='', stderr=''):
    """Exit code and patterns; returns what ran."""
    what = ' '.join(done.args)
    if done.returncode != code:
        raise Failure(f'{what}\nexit code {done.returncode}, not {code}\n{done.stdout}{done.stderr}')
    for name, text, pattern in (('stdout', done.stdout, stdout), ('stderr', done.stderr, stderr)):
        if pattern and not re.search(pattern, text, re.M):
            raise Failure(f'{what}\nno {pattern!r} in {name}:\n{text}')
    return done


def equal(got, wanted, what=''):
    if got != wanted:
        raise Failure(f'{what}: {got!r}, not {wanted!r}')


def write(cwd, name, text=ADD):
    path = cwd / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def files(cwd):
    return sorted(str(path.relative_to(cwd)) for path in cwd.rglob('*') if path.is_file())


def symbols(path, cwd):
    """Defined symbols of a host object or archive: name -> letter of nm."""
    text = expect(run('nm', '--defined-only', path, cwd=cwd)).stdout
    return {line.split()[-1]: line.split()[-2] for line in text.splitlines() if len(line.split()) == 3}


def without(folder, *missing):
    """A folder for PATH with everything of the present one but some programs."""
    folder.mkdir()
    for directory in os.environ['PATH'].split(':'):
        if not os.path.isdir(directory):
            continue
        for name in os.listdir(directory):
            source, link = os.path.join(directory, name), folder / name
            if name not in missing and not link.is_symlink():
                link.symlink_to(source)
    return str(folder)


def main(checks):
    """checks: functions by name. Exit code 0 where all pass."""
    def one(check):
        start = time.monotonic()
        folder = pathlib.Path(tempfile.mkdtemp(prefix='verbatim-dpacc-test-'))
        try:
            check(folder)
            return None
        except (Failure, Skip) as problem:
            return problem
        except Exception:  # pylint: disable=broad-except
            return Failure(traceback.format_exc())
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            if os.environ.get('KIT_TIMES'):
                print(f'# {time.monotonic() - start:.1f} s {check.__name__}')

    names = sys.argv[1:] or list(checks)
    print(f'1..{len(names)}')
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for number, (name, problem) in enumerate(zip(names, pool.map(one, [checks[name] for name in names])), 1):
            title = name.replace('_', ' ')
            if isinstance(problem, Skip):
                print(f'ok {number} {title} # skip {problem}')
            elif problem:
                failed += 1
                print(f'not ok {number} {title}')
                print('\n'.join('# ' + line for line in str(problem).splitlines()))
            else:
                print(f'ok {number} {title}')
    sys.exit(1 if failed else 0)


def collect(namespace):
    """The functions of a module that are checks, in order."""
    return {name[len('check_'):]: f for name, f in namespace.items() if name.startswith('check_')}
