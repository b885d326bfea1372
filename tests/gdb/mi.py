"""gdb's machine interface: commands, their results, and what stops.

A result or record is a dictionary; lists are lists. A gdb that does not answer within LIMIT seconds hangs, which is the
only thing that the limit says.
"""
import queue
import subprocess
import threading

LIMIT = 120


class GdbError(Exception):
    pass


class Parser:
    """Of RESULT,RESULT... as in: name="value",list=[...],tuple={...}"""

    def __init__(self, text):
        self.text, self.at = text, 0

    def peek(self):
        return self.text[self.at:self.at + 1]

    def string(self):
        self.at += 1
        out = []
        while self.peek() != '"':
            if self.peek() == '\\':
                self.at += 1
                out.append({'n': '\n', 't': '\t'}.get(self.peek(), self.peek()))
            else:
                out.append(self.peek())
            self.at += 1
        self.at += 1
        return ''.join(out)

    def value(self):
        if self.peek() == '"':
            return self.string()
        if self.peek() == '{':
            self.at += 1
            out = self.results('}')
            self.at += 1
            return out
        self.at += 1
        out = []
        while self.peek() != ']':
            if self.peek() not in '"{[':
                self.name()  # frame={...} in a list: the name says nothing new
            out.append(self.value())
            if self.peek() == ',':
                self.at += 1
        self.at += 1
        return out

    def name(self):
        end = self.text.index('=', self.at)
        name, self.at = self.text[self.at:end], end + 1
        return name

    def results(self, end=''):
        out = {}
        while self.at < len(self.text) and self.peek() != end:
            name = self.name()
            out[name] = self.value()
            if self.peek() == ',':
                self.at += 1
        return out


class Gdb:
    def __init__(self, *arguments, program='gdb-multiarch', **options):
        self.process = subprocess.Popen([program, '--interpreter=mi3', '-nx', '-q', *arguments], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                                        **options)
        self.lines = queue.Queue()
        self.log = []
        self.stops = []
        threading.Thread(target=self.read, daemon=True).start()
        self.command('-gdb-set mi-async on')  # commands are read while the program runs, too
        self.command('-gdb-set remotetimeout 60')  # a busy machine may be slow

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip('\n'))
        self.lines.put(None)

    def next(self):
        """A record: its kind (^, *, =, ~), its word, its results."""
        try:
            line = self.lines.get(timeout=LIMIT)
        except queue.Empty:
            raise GdbError('gdb hangs:\n' + '\n'.join(self.log[-60:])) from None
        if line is None:
            raise GdbError('gdb ended:\n' + '\n'.join(self.log[-60:]))
        self.log.append(line)
        body = line.lstrip('0123456789')
        if body[:1] not in '^*=':
            return body[:1], body[1:], {}
        word, _, rest = body[1:].partition(',')
        return body[0], word, Parser(rest).results()

    def command(self, text):
        """Its result; what stops meanwhile is kept for wait_stop()."""
        self.log.append('> ' + text)
        self.process.stdin.write(text + '\n')
        self.process.stdin.flush()
        while True:
            kind, word, results = self.next()
            if kind == '*' and word == 'stopped':
                self.stops.append(results)
            elif kind == '^':
                if word == 'error':
                    raise GdbError(f'{text}: {results.get("msg")}')
                return results

    def wait_stop(self):
        while not self.stops:
            kind, word, results = self.next()
            if kind == '*' and word == 'stopped':
                self.stops.append(results)
        return self.stops.pop(0)

    def wait_record(self, kind, word):
        while self.next()[:2] != (kind, word):
            pass

    def go(self, text='-exec-continue'):
        """Let it run; why it stopped."""
        self.command(text)
        return self.wait_stop()

    def attach(self, remote):
        self.command(f'-target-select {remote}')
        return self.wait_stop()

    def evaluate(self, expression):
        return self.command(f'-data-evaluate-expression "{expression}"')['value']

    def console(self, text):
        """What a command prints."""
        start = len(self.log)
        self.command(f'-interpreter-exec console "{text}"')
        return ''.join(Parser(line[1:]).string() for line in self.log[start:] if line.startswith('~'))

    def backtrace(self):
        """Functions and their arguments, by name."""
        frames = self.command('-stack-list-frames')['stack']
        arguments = self.command('-stack-list-arguments 1')['stack-args']
        return [(frame.get('func'), {a['name']: a['value'] for a in args['args']})
                for frame, args in zip(frames, arguments)]

    def threads(self):
        return {t['name']: t for t in self.command('-thread-info')['threads']}

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
