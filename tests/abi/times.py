#!/usr/bin/env python3
"""Walks src/ and fails where a file other than base/time reads a clock, sleeps or waits with a time-out.

usage: times.py SOURCE_ROOT

A test or a simulation replaces the card's time in one place (src/base/time.h), so there must be no second one. The few files that cannot use
it are in EXCEPTIONS, each with its reason. Prints one TAP line per rule, and names file, line and call of each that breaks it.
"""
import os
import re
import sys

OWNERS = {'base/time.c', 'base/time.h'}

# (file or folder, call): why it does that itself.
EXCEPTIONS = {
    ('device/', '*'): 'runs on the accelerator, whose clock is the device\'s',
    ('host/memory/', 'futex'): 'links libc alone and comes before everything else; it waits without a time-out',
    ('host/signal_wrappers.c', 'ppoll'): 'the program\'s own call, passed on',
    ('host/signal_wrappers.c', 'pselect'): 'the program\'s own call, passed on',
    ('host/signal_wrappers.c', 'epoll_pwait'): 'the program\'s own call, passed on',
    ('host/signal_wrappers.c', 'epoll_pwait2'): 'the program\'s own call, passed on',
    ('api/flexio/out.c', 'sigtimedwait'): 'takes a pending SIGPIPE back, and never waits for one',
    ('control/ask/client.c', 'usleep'): 'for tools that link nothing else of ours',
    ('tools/stats/statistics.c', 'sigtimedwait'): 'waits for Ctrl-C in a process that has no card',
    ('control/ask/socket.h', 'SO_RCVTIMEO'): 'between a tool and a program: the kernel\'s end of a read that both processes live through',
    ('control/ask/socket.h', 'SO_SNDTIMEO'): 'the same of a write',
}

CLOCKS = ['clock_gettime', 'clock_getres', 'gettimeofday', 'timespec_get', 'times', 'time', 'clock', 'ftime', 'getrusage',
          'clock_getcpuclockid', 'pthread_getcpuclockid', '__builtin_ia32_rdtsc', '__builtin_ia32_rdtscp', '__rdtsc', '__rdtscp', '_rdtsc']
SLEEPS = ['nanosleep', 'clock_nanosleep', 'usleep', 'sleep', 'thrd_sleep', 'alarm', 'ualarm', 'setitimer', 'timer_create', 'timer_settime',
          'timerfd_create', 'timerfd_settime']
WAITS = ['pthread_cond_timedwait', 'pthread_cond_clockwait', 'pthread_condattr_setclock', 'pthread_mutex_timedlock', 'pthread_mutex_clocklock',
         'pthread_rwlock_timedrdlock', 'pthread_rwlock_timedwrlock', 'pthread_timedjoin_np', 'pthread_clockjoin_np', 'sem_timedwait',
         'sem_clockwait', 'mq_timedreceive', 'mq_timedsend', 'cnd_timedwait', 'mtx_timedlock', 'sigtimedwait', 'ppoll', 'pselect', 'select',
         'epoll_pwait', 'epoll_pwait2', 'recvmmsg', 'semtimedop', 'io_getevents']
# Their last argument is the time-out, in milliseconds.
MILLISECONDS = ['poll', 'epoll_wait']

# Not the member of a struct, whose name is its own business.
CALL = re.compile(r'(?<![\w.>])(' + '|'.join(CLOCKS + SLEEPS + WAITS + MILLISECONDS) + r')\s*\(')
WORD = re.compile(r'\b(SO_RCVTIMEO|SO_SNDTIMEO)\b')
SYSCALL = re.compile(r'\b(?:SYS|__NR)_(' + '|'.join(CLOCKS + SLEEPS + WAITS + MILLISECONDS + ['futex']) + r')(?:_time64|_waitv)?\b')
ASSEMBLY = re.compile(r'"[^"\n]*\b(rdtscp?|rdpmc)\b')
COMMENT = re.compile(r'/\*.*?\*/|//[^\n]*', re.DOTALL)
STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')


def last_argument(text, at):
    """Of the call whose arguments begin at this place."""
    depth, begin = 1, at
    for end in range(at, len(text)):
        char = text[end]
        if char in '([{':
            depth += 1
        elif char in ')]}':
            depth -= 1
            if not depth:
                return text[begin:end].strip()
        elif char == ',' and depth == 1:
            begin = end + 1
    return ''


def blank(match):
    return re.sub(r'[^\n]', ' ', match[0])


def uses(source):
    """(line, call) of each clock, sleep and time-out."""
    plain = COMMENT.sub(blank, source)
    found = [(match.start(), match[1]) for match in ASSEMBLY.finditer(plain)]
    plain = STRING.sub(blank, plain)
    for match in CALL.finditer(plain):
        if match[1] not in MILLISECONDS or last_argument(plain, match.end()) not in ('0', '-1'):
            found.append((match.start(), match[1]))
    for pattern in (WORD, SYSCALL):
        found += [(match.start(), match[1]) for match in pattern.finditer(plain)]
    return sorted((plain.count('\n', 0, at) + 1, call) for at, call in found)


def exception(path, call):
    for row in EXCEPTIONS:
        if (path.startswith(row[0]) if row[0].endswith('/') else path == row[0]) and row[1] in ('*', call):
            return row
    return None


def files(root):
    for base, _, names in os.walk(root):
        for name in names:
            if name.endswith(('.c', '.h', '.S', '.cc', '.cpp')):
                yield os.path.relpath(os.path.join(base, name), root)


def walk(root):
    """What breaks the rule, and the exceptions that no file needs."""
    wrong, needed, owned = [], set(), 0
    for path in sorted(files(root)):
        with open(os.path.join(root, path), encoding='utf-8') as source:
            found = uses(source.read())
        if path in OWNERS:
            owned += len(found)
            continue
        for line, call in found:
            row = exception(path, call)
            if row:
                needed.add(row)
            else:
                wrong.append(f'{path}:{line}: {call}: base/time.h has what this needs')
    stale = [f'{path} {call}: no such use is left' for path, call in EXCEPTIONS if (path, call) not in needed and call != '*']
    return wrong, stale, owned


# Each of these is found, by its call; and none of the others.
PLANTED = {
    'clock_gettime(CLOCK_MONOTONIC, &ts);': 'clock_gettime',
    't = time(NULL);': 'time',
    'usleep (10);': 'usleep',
    'syscall(SYS_futex, &word, op, 0, &ts, NULL, 0);': 'futex',
    'syscall(SYS_nanosleep, &ts, NULL);': 'nanosleep',
    'n = poll(&fds[f(a, b)], 1, timeout_ms);': 'poll',
    'n = epoll_wait(fd, &event, 1,\n\t\t100);': 'epoll_wait',
    'ppoll(&fd, 1, &ts, NULL);': 'ppoll',
    'pthread_cond_timedwait(&cond, &lock, &ts);': 'pthread_cond_timedwait',
    'return __builtin_ia32_rdtsc();': '__builtin_ia32_rdtsc',
    '__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));': 'rdtsc',
    'setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t));': 'SO_RCVTIMEO',
}
HARMLESS = [
    'poll(&fd, 1, -1);', 'poll(&fd, 1, 0);', 'epoll_wait(fd, &event, 1, -1);', '/* time (ns) of the next timer, as poll(2, 3, 4) */',
    'dpa->poll(dpa->poll_arg);', 'vb_clock();', '// sleep(1)', 'puts("time(s), sleep(1)");', 'vb_poll_until(time, &fd, 1, until, NULL);',
    'pthread_cond_wait(&cond, &lock);', 'cq.poll(cq, 1, wc);',
]


def main():
    wrong, stale, owned = walk(os.path.join(sys.argv[1], 'src'))
    blind = [text for text, call in PLANTED.items() if [name for _, name in uses(text)] != [call]]
    blind += [text for text in HARMLESS if uses(text)]
    results = [
        ('no file but base/time reads a clock, sleeps or waits with a time-out', wrong + ([] if owned else ['base/time has none'])),
        ('every exception is needed', stale),
        ('the walk finds what it looks for', blind),
    ]
    print(f'1..{len(results)}')
    for number, (name, faults) in enumerate(results, 1):
        for text in faults:
            print('# ' + text)
        print(('not ok' if faults else 'ok') + f' {number} - {name}')
    return 1 if any(faults for _, faults in results) else 0


if __name__ == '__main__':
    sys.exit(main())
