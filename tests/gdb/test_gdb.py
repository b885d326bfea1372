#!/usr/bin/env python3
"""The debugger of device code, driven as an IDE drives it: gdb-multiarch through its machine interface, on a program that
is built and run as users do. Each check is one session or more.
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'dpacc'), str(HERE.parent / 'peers')]
from kit import BIN, STAGE, Failure, Skip, collect, dpacc, equal, expect, main, run  # noqa: E402
import peers  # noqa: E402
from mi import LIMIT, Gdb, GdbError  # noqa: E402

PRELOAD = peers.sanitizer(STAGE)
SOURCE = HERE / 'debuggee.dev.c'
LINES = {m.group(1): number for number, text in enumerate(SOURCE.read_text().splitlines(), 1)
         if (m := re.search(r'/\* line: (\w+) \*/', text))}
built = threading.Lock()


def build():
    """The program, once for all checks."""
    with built:
        folder = getattr(build, 'folder', None)
        if folder:
            return folder
        if not shutil.which('gdb-multiarch'):
            raise Skip('no gdb-multiarch')
        folder = pathlib.Path(tempfile.mkdtemp(prefix='verbatim-gdb-test-'))
        env = {'PKG_CONFIG_PATH': str(STAGE / 'lib/pkgconfig')}
        flags = shlex.split(expect(run('pkg-config', '--cflags', '--libs', 'libflexio', cwd=folder, env=env)).stdout)
        expect(dpacc(folder, SOURCE, '-o', 'debuggee.a', '-mcpu=nv-dpa-bf3', '-hostcc=gcc', '-app-name=debuggee',
                     '-devicecc-options=-g -O0 -Wall -Wextra -Werror -DFLEXIO_DEV_ALLOW_EXPERIMENTAL_API'))
        expect(run('gcc', '-Wall', '-Wextra', '-Werror', '-g', '-O1', '-pthread', '-DFLEXIO_ALLOW_EXPERIMENTAL_API',
                   HERE / 'debuggee.c', 'debuggee.a', *flags, '-o', 'debuggee', cwd=folder))
        build.folder = folder
        return folder


def environment(**env):
    clean = {name: value for name, value in os.environ.items() if name == 'VERBATIM_SHM_DIR' or not name.startswith('VERBATIM_')}
    return {**clean, **env}


def under_run(*words):
    before = ['env', f'LD_PRELOAD={PRELOAD}', 'ASAN_OPTIONS=detect_leaks=0'] if PRELOAD else []
    return [str(BIN / 'verbatim'), 'run', '--', *before, *words]


class Program:
    """The debuggee, which does what it is told."""

    def __init__(self, *words, **env):
        folder = build()
        self.process = subprocess.Popen(under_run(str(folder / 'debuggee'), *words), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=environment(**env))
        self.watchdog = threading.Timer(2 * LIMIT, self.process.kill)
        self.watchdog.daemon = True
        self.watchdog.start()
        self.token = self.hear('token 0x')

    def tell(self, words):
        self.process.stdin.write(words + '\n')
        self.process.stdin.flush()

    def hear(self, begin):
        line = self.process.stdout.readline()
        if not line.startswith(begin):
            raise Failure(f'{line!r}, not {begin!r}...\n{self.process.stderr.read() if not line else ""}')
        return line[len(begin):].strip() if not begin.endswith('0x') else '0x' + line[len(begin):].strip()

    def ask(self, words, answer):
        self.tell(words)
        return self.hear(answer)

    def end(self, code=0):
        """No more words: it ends by itself."""
        self.process.stdin.close()
        if self.process.wait(LIMIT) != code:
            raise Failure(f'exit code {self.process.returncode}\n{self.process.stderr.read()}')

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watchdog.cancel()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Server:
    """dpa-gdbserver on any port."""

    def __init__(self, program, *options, **popen):
        self.process = subprocess.Popen([str(BIN / 'dpa-gdbserver'), 'mlx5_0', '-T', program.token, '-s', '0', *options],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen)
        self.hear('Registered on device mlx5_0')
        self.port = int(self.hear(r'Listening for GDB on port (\d+)').group(1))

    def hear(self, pattern):
        line = self.process.stdout.readline()
        found = re.match(pattern, line)
        if not found:
            raise Failure(f'dpa-gdbserver: {line!r}, not {pattern!r}')
        return found

    @property
    def remote(self):
        return f'remote :{self.port}'

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


class Debugger(Gdb):
    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def pipe(program):
    """target remote by the relay of verbatim gdb."""
    return f'remote | exec {BIN}/verbatim gdb --relay={program.token}'


def attached(program, *breakpoints):
    gdb = Debugger()
    gdb.attach(pipe(program))
    for place in breakpoints:
        gdb.command(f'-break-insert {place}')
    return gdb


def let_run(gdb, program):
    """gdb says that it runs before it has said so to the stub; an RPC that returns shows it."""
    gdb.command('-exec-continue')
    program.ask('rpc 0 0', 'rpc 0 0')


def at(stop, line, function=None):
    frame = stop['frame']
    equal(int(frame.get('line', 0)), LINES[line], f'line in {frame}')
    if function:
        equal(frame['func'], function, 'function')


# ---- threads, breakpoints, stepping -----------------------------------------------------------------------------------


def check_session_over_tcp_with_nothing_but_the_token(_):
    """As users type it: dpa-gdbserver, then target remote; gdb gets the device ELF from the stub."""
    with Program() as program, Server(program) as server, Debugger() as gdb:
        gdb.attach(server.remote)
        server.hear('GDB is connected')
        names = gdb.threads()
        equal({'spinner', 'CMDQ_1_0_0', 'CMDQ_1_0_1', 'RPC'} - set(names), set(), f'threads of {names}')
        equal(names['spinner']['details'], 'idle', 'details')
        gdb.command('-break-insert sum_of_squares')
        program.tell('thread 3 4')
        at(gdb.go(), 'first', 'sum_of_squares')
        equal(gdb.backtrace()[0], ('sum_of_squares', {'a': '3', 'b': '4'}), 'backtrace')
        equal('RPC sum_of_squares' in gdb.threads(), True, 'the name of an RPC')
        gdb.command('-target-detach')
        server.hear('GDB is disconnected')
        equal(program.hear('thread 0 '), '25', 'the sum')
        program.end()


def each_tier(body):
    for tier in ('interp', 'jit'):
        with Program(VERBATIM_DPA_TIER=tier) as program:
            body(program)


def check_breakpoints_stack_locals_and_steps(_):
    def body(program):
        with attached(program, f'debuggee.dev.c:{LINES["second"]}') as gdb:
            program.tell('thread 3 4')
            at(gdb.go(), 'second', 'sum_of_squares')
            equal(gdb.evaluate('first'), '9', 'first')
            at(gdb.go('-exec-step'), 'square', 'square')
            equal(gdb.backtrace()[:2], [('square', {'value': '4'}), ('sum_of_squares', {'a': '3', 'b': '4'})], 'stack')
            at(gdb.go('-exec-next'), 'count')
            local = gdb.command('-stack-list-locals 1')['locals']
            equal(local, [{'name': 'result', 'value': '16'}], 'locals')
            equal(gdb.evaluate('corner'), '{x = 3, y = -4, label = 0x' + re.search(
                r'label = 0x(\w+)', gdb.evaluate('corner')).group(1) + ' "lower left"}', 'a structure')
            equal(gdb.evaluate('counter'), '1009', 'counter')
            stop = gdb.go('-exec-finish')
            equal(stop['return-value'], '16', 'what square returned')
            at(gdb.go('-exec-next'), 'sum')
            gdb.command('-data-evaluate-expression "second = 100"')
            gdb.command('-target-detach')
            equal(program.hear('thread 0 '), '109', 'the sum of what was written')
        program.end()
    each_tier(body)


def check_steps_to_the_end_of_an_rpc(_):
    """The last step ends in no function of the program; the RPC is over, and the next one can be stopped in."""
    with Program() as program, attached(program, f'debuggee.dev.c:{LINES["sum"]}') as gdb:
        program.tell('thread 3 4')
        at(gdb.go(), 'sum')
        stop = gdb.go('-exec-next')
        equal((stop['reason'], stop['frame'].get('line')), ('end-stepping-range', None), 'where')
        gdb.command('-exec-continue')
        equal(program.hear('thread 0 '), '25', 'sum')
        program.tell('thread 5 6')
        at(gdb.wait_stop(), 'sum')
        stop = gdb.go('-exec-finish')
        equal(stop.get('return-value'), '61', 'what the RPC returns')
        program.tell('thread 5 6')
        at(gdb.go(), 'sum')  # perhaps before the first one has got away
        gdb.command('-target-detach')
        for _ in range(2):
            equal(program.hear('thread 0 '), '61', 'sum')


def check_conditions_and_many_breakpoints(_):
    with Program() as program, attached(program) as gdb:
        gdb.command('-break-insert -c "value == 7" square')
        for line in ('first', 'second', 'sum', 'count', 'squared'):
            gdb.command(f'-break-disable {gdb.command(f"-break-insert debuggee.dev.c:{LINES[line]}")["bkpt"]["number"]}')
        program.tell('rpc 3 4')
        program.tell('rpc 5 7')
        at(gdb.go(), 'square')
        equal(program.hear('rpc 0 '), '25', 'no stop before')
        equal(gdb.evaluate('value'), '7', 'value')
        equal(gdb.backtrace()[1], ('sum_of_squares', {'a': '5', 'b': '7'}), 'caller')
        gdb.command('-break-delete')
        gdb.command('-exec-continue')
        equal(program.hear('rpc 0 '), '74', 'sum')


def check_breakpoint_at_malloc(_):
    """In checked mode the host does what malloc would; the breakpoint comes first."""
    for checks in ('', 'heap,uninit'):
        with Program(**{'VERBATIM_DPA_CHECK': checks} if checks else {}) as program, attached(program, '*malloc') as gdb:
            program.tell('heap 7')
            equal(gdb.go()['frame']['func'], 'malloc', 'function')
            gdb.command(f'-break-insert debuggee.dev.c:{LINES["block"]}')
            at(gdb.go(), 'block', 'on_heap')
            gdb.command('-target-detach')
            equal(program.hear('heap 0 '), '7', 'result')
            program.end()


def check_worker_and_handler_by_name(_):
    with Program() as program, attached(program, 'work', 'spin') as gdb:
        program.tell('task')
        stop = gdb.go()
        at(stop, 'work', 'work')
        equal(gdb.command('-thread-info ' + stop['thread-id'])['threads'][0]['name'][:9], 'CMDQ_1_0_', 'worker')
        program.tell('fire')
        gdb.command('-break-delete 1')
        stop = gdb.go()
        equal(program.hear('task'), '', 'the task is done')
        equal(stop['frame']['func'], 'spin', 'function')
        equal(gdb.command('-thread-info ' + stop['thread-id'])['threads'][0]['name'], 'spinner', 'handler')
        gdb.command('-target-detach')
        program.hear('fired')
        program.ask('stop', 'stopped')
        program.end()


def check_watchpoints(_):
    def body(program):
        with attached(program, 'sum_of_squares') as gdb:
            program.tell('thread 3 4')
            gdb.go()
            gdb.command('-break-delete')
            gdb.command('-break-watch counter')
            stop = gdb.go()
            equal((stop['reason'], stop['value']), ('watchpoint-trigger', {'old': '1000', 'new': '1009'}), 'watch')
            equal(stop['frame']['func'], 'square', 'function')
            gdb.command('-break-delete')
            gdb.command('-break-watch -r counter')
            stop = gdb.go()
            equal((stop['reason'], stop['value']), ('read-watchpoint-trigger', {'value': '1009'}), 'rwatch')
            gdb.command('-break-delete')
            gdb.command('-break-watch -a counter')
            equal(gdb.go()['reason'], 'access-watchpoint-trigger', 'awatch')
            gdb.command('-break-delete')
            gdb.command('-exec-continue')
            equal(program.hear('thread 0 '), '25', 'sum')
    each_tier(body)


def check_interrupt_a_handler_that_spins(_):
    def body(program):
        program.ask('fire', 'fired')
        with attached(program) as gdb:
            equal(gdb.backtrace()[0][0], 'spin', 'where it was when gdb attached')
            before = int(gdb.evaluate('mine'))
            for _ in range(3):
                gdb.command('-exec-continue')
                gdb.command('-exec-interrupt')
                stop = gdb.wait_stop()
                equal(stop['signal-name'], 'SIGINT', 'signal')
                equal(stop['frame']['func'], 'spin', 'function')
            gdb.command('-data-evaluate-expression "spinning = 0"')
            equal(int(gdb.evaluate('mine')) >= before, True, 'it went on')
            gdb.command('-target-detach')
            program.ask('rpc 1 1', 'rpc 0 ')
        program.end()
    each_tier(body)


def check_registers_and_counters(_):
    with Program() as program, attached(program, 'square') as gdb:
        program.tell('thread 3 4')
        gdb.go()
        pc = int(gdb.evaluate('(long)$pc'))
        count, cycle = int(gdb.evaluate('$instret')), int(gdb.evaluate('$cycle'))
        gdb.go('-exec-step-instruction')
        equal(int(gdb.evaluate('$instret')), count + 1, 'one instruction')
        equal(int(gdb.evaluate('$cycle')) > cycle, True, 'time goes on')
        equal(int(gdb.evaluate('(long)$pc')) in (pc + 2, pc + 4), True, 'pc')
        gdb.command('-gdb-set $s11 = 0x1234567890abcdef')
        equal(gdb.evaluate('$x27'), '1311768467294899695', 's11')
        equal(gdb.evaluate('$zero'), '0', 'zero')
        equal(gdb.evaluate('$cause'), 'NONE', 'cause')
        try:
            gdb.command('-gdb-set $instret = 0')
            raise Failure('a counter was written')
        except GdbError:
            pass
        gdb.go('-exec-next-instruction')
        gdb.command('-target-detach')
        equal(program.hear('thread 0 '), '25', 'sum')


def check_memory_of_device_and_window(_):
    with Program() as program, attached(program, f'debuggee.dev.c:{LINES["window"]}') as gdb:
        program.tell('window')
        at(gdb.go(), 'window', 'look')
        equal(gdb.evaluate('words[0]'), str(0x1122334455667788), 'host memory through the window')
        where = int(gdb.evaluate('at'))
        equal(where >= 1 << 32, True, 'it is above the limit')
        text = gdb.command(f'-data-read-memory-bytes {where} 16')['memory'][0]['contents']
        equal(text, '8877665544332211' '0100000000000000', 'bytes')
        gdb.command('-data-evaluate-expression "words[1] = 2"')
        try:
            gdb.command('-data-read-memory-bytes 0 8')
            raise Failure('page 0 was read')
        except GdbError:
            pass
        gdb.command('-exec-continue')
        equal(program.hear('window '), '112233445566778a', 'what the RPC read')


# ---- faults, limits ---------------------------------------------------------------------------------------------------


def check_stop_on_a_null_store(_):
    def body(program):
        with attached(program) as gdb:
            gdb.command('-exec-continue')
            program.tell('null')
            stop = gdb.wait_stop()
            at(stop, 'null', 'store_null')
            equal(stop['signal-name'], 'SIGSEGV', 'signal')
            equal(gdb.evaluate('value'), '7', 'argument')
            equal((gdb.evaluate('$cause'), gdb.evaluate('(long)$tval')), ('STORE_FAULT', '0'), 'cause')
            gdb.command('-exec-continue')
            # the process ends as it would have without a debugger
            equal(program.hear('null '), str(status('FATAL_ERR')), 'status')
            gdb.command('-exec-interrupt')
            gdb.wait_stop()
            gdb.command('-target-detach')
    each_tier(body)


def status(name):
    text = (STAGE / 'include/libflexio/flexio_def.h') if (STAGE / 'include/libflexio/flexio_def.h').exists() else None
    for path in [text] if text else (STAGE / 'include/libflexio').glob('*.h'):
        found = re.search(rf'FLEXIO_STATUS_{name}\s*=\s*(-?\w+)', path.read_text())
        if found:
            return int(found.group(1), 0)
    raise Failure(f'no FLEXIO_STATUS_{name}')


def check_stop_on_an_illegal_instruction(_):
    with Program() as program, attached(program) as gdb:
        gdb.command('-exec-continue')
        program.tell('illegal')
        stop = gdb.wait_stop()
        at(stop, 'illegal')
        equal((stop['signal-name'], gdb.evaluate('$cause')), ('SIGILL', 'ILLEGAL_INSTRUCTION'), 'signal')


def check_time_limit_of_an_rpc_stands_still(_):
    """The limit is short, and the RPC is held for longer: it is not over afterwards."""
    for env in ({}, {'VERBATIM_RPC_LEND': 'off'}):
        with Program(VERBATIM_RPC_TIMEOUT_MS='1000', **env) as program, attached(program, 'square') as gdb:
            program.tell('thread 3 4')
            gdb.go()
            time.sleep(2.5)
            gdb.command('-break-delete')
            gdb.go('-exec-step')
            time.sleep(1.5)
            gdb.command('-exec-continue')
            equal(program.hear('thread 0 '), '25', 'the RPC')


# ---- coming and going -------------------------------------------------------------------------------------------------


def check_detach_and_attach_again(_):
    with Program() as program, Server(program) as server:
        for turn in range(3):
            with Debugger() as gdb:
                gdb.attach(server.remote)
                gdb.command('-break-insert square')
                program.tell('thread 3 4')
                at(gdb.go(), 'square')
                gdb.command('-target-detach')
                equal(program.hear('thread 0 '), '25', f'turn {turn}: its breakpoints are gone')
        program.ask('rpc 5 6', 'rpc 0 ')
        program.end()


def check_gdb_killed_while_stopped(_):
    with Program() as program, Server(program) as server:
        with Debugger() as gdb:
            gdb.attach(server.remote)
            gdb.command('-break-insert square')
            program.tell('thread 3 4')
            gdb.go()
            gdb.process.kill()
            equal(program.hear('thread 0 '), '25', 'it goes on')
        with Debugger() as gdb:  # and there is room for the next
            gdb.attach(server.remote)
        program.end()


def check_server_killed_while_stopped(_):
    with Program() as program, Server(program) as server, Debugger() as gdb:
        gdb.attach(server.remote)
        gdb.command('-break-insert square')
        program.tell('thread 3 4')
        gdb.go()
        server.process.kill()
        equal(program.hear('thread 0 '), '25', 'it goes on')


def check_server_ends_with_the_program(_):
    """Nobody has connected, and nobody will."""
    with Program() as program, Server(program) as server:
        program.end()
        server.hear('Process PROCESS_1 is gone')
        equal(server.process.wait(LIMIT), 0, 'exit code')


def check_second_debugger_is_refused(_):
    with Program() as program, Server(program) as server, Debugger() as gdb:
        gdb.attach(server.remote)
        with Debugger() as second:
            try:
                second.attach(server.remote)
                raise Failure('two debuggers')
            except GdbError:
                pass
        done = run(BIN / 'verbatim', 'gdb', '--batch', program.token, cwd='/')
        equal('a debugger is attached to it already' in done.stdout + done.stderr, True, done.stdout + done.stderr)
        done = run(BIN / 'verbatim', 'gdb', cwd='/')
        equal(re.search(rf'{program.token}.* attached ', done.stdout) is not None, True, done.stdout)
        equal(gdb.evaluate('counter'), '1000', 'the first is still there')
        gdb.command('-target-detach')


def check_two_processes_of_one_program(_):
    """Each has its own debugger, and one that is held leaves the other alone."""
    with Program() as program:
        second = program.ask('another', 'token 0x')
        equal(second[:10], program.token[:10], 'both name the program')
        done = run(BIN / 'verbatim', 'gdb', cwd='/')
        pid = re.search(rf'(\d+) debuggee +{program.token}', done.stdout).group(1)  # other checks run, too
        done = expect(run(BIN / 'verbatim', 'gdb', pid, cwd='/'), 1, stderr='has 2 device processes')
        equal(second in done.stdout and program.token in done.stdout, True, done.stdout)
        with attached(program) as one, Debugger() as two:
            two.attach(f'remote | exec {BIN}/verbatim gdb --relay={second}')
            one.command('-data-evaluate-expression "counter = 7"')
            equal((one.evaluate('counter'), two.evaluate('counter')), ('7', '1000'), 'each has its own memory')
            let_run(one, program)  # while the other is held


def check_program_ends_while_attached(_):
    with Program() as program, attached(program) as gdb:
        let_run(gdb, program)
        program.tell('exit 3')
        stop = gdb.wait_stop()
        equal((stop['reason'], stop.get('exit-code')), ('exited', '03'), 'why')
        program.end(3)
    with Program() as program, attached(program, 'square') as gdb:  # with the prompt, and an RPC that is held
        program.tell('thread 3 4')
        gdb.go()
        program.tell('exit 4')
        program.end(4)
        try:
            gdb.evaluate('counter')
            raise Failure('the process is gone')
        except GdbError:
            pass
    with Program() as program, attached(program) as gdb:
        let_run(gdb, program)
        program.process.send_signal(signal.SIGKILL)
        gdb.wait_record('=', 'thread-group-exited')


def check_process_destroyed_while_attached(_):
    with Program() as program, attached(program) as gdb:
        let_run(gdb, program)
        program.ask('destroy', 'destroyed')
        equal(gdb.wait_stop()['reason'], 'exited-normally', 'why')
        program.end()
    with Program() as program:
        program.ask('fire', 'fired')
        with attached(program) as gdb:  # a handler is held in the middle of its work
            equal(gdb.backtrace()[0][0], 'spin', 'where')
            program.ask('destroy', 'destroyed')
            program.end()


def check_child_of_fork_does_not_hold_the_session(_):
    with Program() as program, attached(program) as gdb:
        let_run(gdb, program)
        program.ask('fork', 'forked ')
        program.tell('exit 0')
        equal(gdb.wait_stop()['reason'], 'exited-normally', 'the parent is gone')


def check_child_of_fork_has_tokens_of_its_own(folder):
    """It ends no session of its parent, and does not answer for it."""
    if PRELOAD and 'tsan' in PRELOAD:
        raise Skip('ThreadSanitizer allows no threads in the child of a fork()')
    with Program() as program:
        first, second = program.token, program.ask('another', 'token 0x')
        program.token = second
        with attached(program) as gdb:
            gdb.command('-exec-continue')
            heir = program.ask('heir', 'token 0x')
            gdb.command('-exec-interrupt')
            equal(gdb.wait_stop()['reason'], 'signal-received', 'the session goes on')
            for token in (first, second, heir):
                expect(verbatim_gdb('--elf', str(folder / 'device.elf'), token))
            equal(len({int(token, 16) >> 32 for token in (first, second, heir)}), 2, 'upper halves, one a program')
        program.end()


def check_program_closes_descriptors(_):
    """Those of the session too: it ends, and nobody waits for it."""
    with Program() as program, attached(program):
        program.ask('close', 'closed')
        program.ask('destroy', 'destroyed')
        program.end()


def check_program_reuses_descriptors(_):
    """Those of the session, too, which ends; what is in their place now is the program's."""
    with Program() as program, attached(program) as gdb:
        let_run(gdb, program)
        program.ask('reuse', 'reused 0')
        program.end()
    with Program() as program, attached(program):
        program.ask('reuse', 'reused 0')
        program.end()


def check_calls_of_device_functions(_):
    with Program() as program, attached(program, f'debuggee.dev.c:{LINES["second"]}') as gdb:
        program.tell('thread 3 4')
        gdb.go()
        equal(gdb.evaluate('square(5)'), '25', 'called by gdb')
        equal(gdb.evaluate('counter'), '1034', 'it ran')
        gdb.command('-target-detach')
        equal(program.hear('thread 0 '), '25', 'and the RPC did not notice')


# ---- who may ----------------------------------------------------------------------------------------------------------


def listener(program):
    with open('/proc/net/unix', encoding='ascii', errors='replace') as table:
        half = program.token[2:].zfill(16)[:8]
        return next(line.split('@')[1].strip() for line in table if line.rstrip().endswith('/' + half))


ANSWER = struct.Struct('<IiI256s')


def request(*words, magic=0x316b7361, service=b'gdb'):
    """As src/control/ask/socket.h has it."""
    return struct.pack('<I16s268s', magic, service, ' '.join(words).encode())


def as_nobody(code, *arguments):
    """A piece of Python, run as another user."""
    if os.geteuid():
        raise Skip('only root can become another user')
    return subprocess.run(['setpriv', '--reuid=65534', '--regid=65534', '--clear-groups', sys.executable, '-c', code,
                           *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT, check=False)


def check_another_user_is_refused(_):
    with Program() as program, Server(program) as server:
        done = as_nobody('import socket, sys\n'
                         's = socket.create_connection(("127.0.0.1", int(sys.argv[1])))\n'
                         'try:\n s.sendall(b"$qSupported#37")\n print(s.recv(100))\n'
                         'except ConnectionError: print(b"")', server.port)
        equal(done.stdout.strip(), "b''", f'nothing over TCP {done.stderr}')
        equal('refused a connection that is not of user 0' in server.process.stderr.readline(), True, 'and it says so')
        done = as_nobody('import socket, struct, sys\n'
                         's = socket.socket(socket.AF_UNIX)\ns.connect("\\0" + sys.argv[1])\n'
                         'try: s.sendall(bytes.fromhex(sys.argv[2]))\nexcept OSError: pass\n'
                         'print(struct.unpack("<Ii", s.recv(8))[1])', listener(program), request('attach', program.token[2:]).hex())
        equal(done.stdout.strip(), '-1', f'EPERM at the socket {done.stderr}')
        program.ask('rpc 1 2', 'rpc 0 5')
        program.end()


def check_wrong_token(_):
    with Program() as program:
        wrong = hex(int(program.token, 16) ^ 1)
        for token in (wrong, '0x123456789abcdef0'):
            done = run(BIN / 'dpa-gdbserver', 'mlx5_0', '-T', token, cwd='/')
            expect(done, 1, stderr='no device process of yours has this token')
        expect(run(BIN / 'dpa-gdbserver', 'mlx5_1', '-T', program.token, cwd='/'), 1, stderr='runs on mlx5_0, not on mlx5_1')
        expect(run(BIN / 'dpa-gdbserver', 'mlx5_0', cwd='/'), 2, stderr='which process')
        expect(run(BIN / 'dpa-gdbserver', '-T', 'token', cwd='/'), 2, stderr='not a token')
        expect(run(BIN / 'dpa-gdbserver', '-T', program.token, '-s', '70000', cwd='/'), 2, stderr='not a port')
        program.end()


def check_garbage_on_the_socket(_):
    with Program() as program:
        name = '\0' + listener(program)
        for junk in (b'', b'x', b'\xff' * 24, b'GET / HTTP/1.0\r\n\r\n' * 100, request('list', magic=0x67626476),
                     request('none'), request('attach', 'x'), request(), request('x' * 300), request('list')[:200]):
            with socket.socket(socket.AF_UNIX) as s:
                s.connect(name)
                try:
                    s.sendall(junk)
                except (BrokenPipeError, ConnectionResetError):
                    pass
        idle = []
        for _ in range(100):  # more than it takes
            s = socket.socket(socket.AF_UNIX)
            s.connect(name)
            idle.append(s)
        program.ask('rpc 3 4', 'rpc 0 25')
        for s in idle:
            s.close()
        attach = request('attach', program.token[2:])
        for junk in (b'$' + b'a' * 100000, b'$m0,ffffffffffffffff#00' * 1000, b'\x03' * 10000, bytes(range(256)) * 50):
            answer = None
            while answer != 0:  # the one before may still be leaving
                with socket.socket(socket.AF_UNIX) as s:
                    s.connect(name)
                    s.sendall(attach)
                    answer = ANSWER.unpack(s.recv(ANSWER.size, socket.MSG_WAITALL))[1]
                    if answer == 0:
                        s.sendall(junk)
        program.ask('rpc 5 6', 'rpc 0 61')
        with attached(program) as gdb:
            equal(gdb.evaluate('counter'), str(1000 + 25 + 61), 'and a debugger can attach')
        program.end()


def check_requests_of_a_browser_are_refused(_):
    """A page that the user looks at can send packets in the body of a request."""
    body = b'$QStartNoAckMode#b0$m10000,4#8b'
    with Program() as program, Server(program) as server:
        with socket.create_connection(('127.0.0.1', server.port)) as s:
            s.sendall(b'POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n' % len(body) + body)
            try:
                equal(s.recv(100), b'', 'the answer')
            except ConnectionError:
                pass
        equal('not of a debugger' in server.process.stderr.readline(), True, 'and it says so')
        with Debugger() as gdb:
            gdb.attach(server.remote)
            gdb.command('-target-detach')
        program.end()


def check_program_that_is_stopped(_):
    with Program() as program:
        pid = int(listener(program).split('/')[3])
        os.kill(pid, signal.SIGSTOP)
        try:
            expect(verbatim_gdb(program.token), 125, stderr='does not answer')
        finally:
            os.kill(pid, signal.SIGCONT)
        program.ask('rpc 3 4', 'rpc 0 25')
        program.end()


# ---- verbatim gdb -----------------------------------------------------------------------------------------------------


def verbatim_gdb(*arguments, env=None):
    return run(BIN / 'verbatim', 'gdb', *arguments, cwd=build(), env=env, stdin=subprocess.DEVNULL)


def check_verbatim_gdb_lists_and_attaches(folder):
    with Program() as program:
        done = expect(verbatim_gdb(), stdout=r'PID COMMAND +TOKEN')
        found = re.search(rf'(\d+) debuggee +{program.token} +mlx5_0 +- +PROCESS_1 \(debuggee\)', done.stdout)
        equal(found is not None, True, done.stdout)
        for what in (program.token, found.group(1)):
            done = expect(verbatim_gdb('--batch', '--ex', 'print corner', '--ex', 'info threads', what))
            equal('label = 0x' in done.stdout and '"spinner"' in done.stdout, True, done.stdout)
            equal('Reading /dpa' in done.stdout, False, 'the file is there: it is not read from the stub')
        expect(verbatim_gdb('--elf', folder / 'device.elf', found.group(1)))
        expect(run('readelf', '-h', folder / 'device.elf', cwd=folder), stdout='RISC-V')
        program.ask('rpc 3 4', 'rpc 0 25')
        program.end()
    expect(verbatim_gdb('1'), 1, stderr='no device process that can be debugged')
    expect(verbatim_gdb('program'), 2, stderr='a program stands behind --')


def check_verbatim_gdb_starts_a_program(_):
    """From its first instruction, the constructors of the device program; the exit code is the program's."""
    done = verbatim_gdb('--batch', '--ex', 'break begin', '--ex', 'break square', '--ex', 'continue', '--ex', 'print counter',
                        '--ex', 'next', '--ex', 'print counter', '--ex', 'continue', '--ex', 'backtrace', '--ex', 'detach',
                        '--', *under_run_words(), './debuggee', 'rpc')
    expect(done)
    text = done.stdout
    for pattern in (r'Breakpoint 1, begin', r'\$1 = 0$', r'\$2 = 1000$', r'Breakpoint 2, square \(value=3\)',
                    r'#1 .* sum_of_squares \(a=3, b=4\)', r'^rpc 0 25$'):
        equal(re.search(pattern, text, re.M) is not None, True, f'{pattern} in\n{text}{done.stderr}')


def under_run_words():
    return ['env', f'LD_PRELOAD={PRELOAD}', 'ASAN_OPTIONS=detect_leaks=0'] if PRELOAD else []


def check_end_of_gdb_kills_the_program_that_it_started(_):
    done = verbatim_gdb('--batch', '--ex', 'break square', '--ex', 'continue', '--ex', 'kill',
                        '--', *under_run_words(), './debuggee', 'rpc')
    equal(done.returncode, 128 + signal.SIGTERM, done.stdout + done.stderr)
    equal('rpc 0' in done.stdout, False, 'it did not go on')


def check_program_without_device_code(_):
    expect(verbatim_gdb('--batch', '--', 'sh', '-c', 'exit 7'), 7, stderr='had created no device process')
    expect(verbatim_gdb('--batch', '--', 'no-such-program'), 127, stderr='not found')


def check_request_to_end_verbatim_gdb(folder):
    """gdb ends with it, and no file is left."""
    fake, temporary = folder / 'gdb', folder / 'tmp'
    fake.write_text('#!/bin/sh\necho started\nexec sleep 1000\n')
    fake.chmod(0o755)
    temporary.mkdir()
    with Program() as program:
        for sig in (signal.SIGTERM, signal.SIGHUP):
            with subprocess.Popen([str(BIN / 'verbatim'), 'gdb', '--gdb', str(fake), program.token], text=True,
                                  stdout=subprocess.PIPE, env=environment(TMPDIR=str(temporary))) as tool:
                equal(tool.stdout.readline(), 'started\n', 'the debugger')
                tool.send_signal(sig)
                equal(tool.wait(LIMIT), 128 + signal.SIGTERM, 'exit code')
            equal(list(temporary.iterdir()), [], 'what is left')
        program.end()


def check_gdb_is_missing(folder):
    (folder / 'bin').mkdir()
    expect(verbatim_gdb('--', './debuggee', env={'PATH': str(folder / 'bin')}), 125, stderr='apt-get install gdb-multiarch')
    expect(verbatim_gdb('--', './debuggee', env={'VERBATIM_GDB': '/no/gdb'}), 125, stderr='/no/gdb: there is no such program')


def check_environment_offers_every_process(_):
    """VERBATIM_DPA_DEBUG: no token is asked for, and a wrong word is refused."""
    folder = build()
    done = subprocess.run(under_run('./debuggee', 'rpc'), cwd=folder, env=environment(VERBATIM_DPA_DEBUG='maybe'),
                          capture_output=True, text=True, timeout=LIMIT, check=False)
    equal('VERBATIM_DPA_DEBUG=maybe is not known' in done.stderr, True, done.stderr)
    process = subprocess.Popen(under_run('./debuggee', 'rpc'), cwd=folder, env=environment(VERBATIM_DPA_DEBUG='wait'),
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        token = re.search(r'verbatim gdb (0x\w+)', process.stderr.readline()).group(1)
        with Debugger() as gdb:
            gdb.attach(f'remote | exec {BIN}/verbatim gdb --relay={token}')
            equal(gdb.evaluate('counter'), '0', 'nothing was executed')
            gdb.command('-target-detach')
        out, err = process.communicate(timeout=LIMIT)
        equal((out, process.returncode), ('rpc 0 25\n', 0), err)
    finally:
        process.kill()
        process.wait()


def threads_of(pid):
    return sorted(path.read_text().strip() for path in pathlib.Path(f'/proc/{pid}/task').glob('*/comm'))


def check_program_that_never_thought_of_debuggers(folder):
    """Nothing in it listens until the tool asks; then all its device processes can be attached to."""
    elf = folder / 'device.elf'
    with Program('quiet') as program:
        pid = str(program.process.pid)
        equal({'verbatim-gdb', 'verbatim-ask'} & set(threads_of(pid)), set(), threads_of(pid))
        equal(pid in run(BIN / 'verbatim', 'gdb', cwd=folder, env=environment()).stdout, False, 'it is not listed')
        done = verbatim_gdb('--batch', '--ex', 'print counter', '--ex', 'detach', pid)
        equal(re.search(r'^\$1 = 1000$', expect(done).stdout, re.M) is not None, True, done.stdout + done.stderr)
        equal(program.ask('rpc 3 4', 'rpc '), '0 25', 'it goes on')
        expect(verbatim_gdb('--elf', elf, pid))
        equal(elf.read_bytes()[:4], b'\x7fELF', 'the device ELF')
        equal(pid in expect(verbatim_gdb()).stdout, True, 'now it is listed')
        program.end()


def check_programs_that_cannot_be_attached_to(_):
    with Program('quiet', VERBATIM_DPA_DEBUG='off') as program:
        done = verbatim_gdb('--batch', str(program.process.pid))
        equal((done.returncode, 'no device process that can be debugged' in done.stderr), (1, True), done.stderr)
        program.end()
    with subprocess.Popen(['sleep', '1000']) as other:
        done = verbatim_gdb('--batch', str(other.pid))
        other.kill()
    equal((done.returncode, 'no device process that can be debugged' in done.stderr), (1, True), done.stderr)


def check_launch_file_of_the_documents(folder):
    """VS Code does this with it: the file by its name, the server by its address."""
    text = (HERE.parent.parent / 'docs/debugging.md').read_text()
    config = json.loads(re.search(r'```json\n(.*?)```', text, re.S).group(1))['configurations'][0]
    equal((config['type'], config['MIMode'], config['miDebuggerServerAddress']), ('cppdbg', 'gdb', '127.0.0.1:1981'), 'kind')
    with Program() as program, Server(program) as server, Debugger() as gdb:
        elf = folder / os.path.basename(config['program'])
        expect(verbatim_gdb('--elf', elf, program.token))
        gdb.command(f'-file-exec-and-symbols {elf}')
        gdb.attach(f'remote 127.0.0.1:{server.port}')
        gdb.command('-break-insert -f square')
        program.tell('thread 3 4')
        at(gdb.go(), 'square')


def check_second_program_of_a_script_goes_on(_):
    done = verbatim_gdb('--batch', '--ex', 'break square', '--ex', 'continue', '--ex', 'detach', '--', 'sh', '-c',
                        f'{shlex.join(under_run_words())} ./debuggee rpc; {shlex.join(under_run_words())} ./debuggee rpc')
    equal(expect(done).stdout.count('rpc 0 25'), 2, done.stdout + done.stderr)


def host_gdb(*program):
    """gdb on the host's half, with the script that knows the card's faults."""
    done = subprocess.run([str(BIN / 'verbatim'), 'run', '--', 'gdb-multiarch', '-nx', '-q', '-batch', '-x',
                           str(STAGE / 'share/verbatim/host.gdb'), '-ex', 'handle SIGUSR1 nostop', '-ex', 'run',
                           '-ex', 'backtrace', '--args', *program],
                          cwd=build(), env=environment(), stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=LIMIT, check=False)
    if re.search('ptrace|Could not trace', done.stderr):
        raise Skip('programs cannot be traced here')
    return done.stdout + done.stderr


def check_host_script_passes_doorbells_on(_):
    """A program that rings by stores, and makes faults of the card, runs to its end."""
    build()
    direct = STAGE.parent / 'tests/programs/mlx5_direct'
    if PRELOAD or not direct.exists():
        raise Skip('no program that rings by stores, or a sanitizer')
    text = host_gdb(str(direct))
    equal('exited normally' in text, True, text)
    text = host_gdb('./debuggee', 'rpc', 'crash')
    equal('rpc 0 25' in text and 'A fault of the program itself' in text, True, text)
    line = next(n for n, t in enumerate((HERE / 'debuggee.c').read_text().splitlines(), 1) if 'line: crash' in t)
    equal(re.search(rf'debuggee.c:{line}$', text, re.M) is not None, True, text)


def finish():
    folder = getattr(build, 'folder', None)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == '__main__':
    try:
        main(collect(globals()))
    finally:
        finish()
