"""A page in headless Chromium, driven over the pipe of its DevTools protocol: no driver and no package is needed."""
import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
import time


class Browser:
    """with Browser() as page: page.open(path); page.run('expression'); page.press('n')."""

    def __init__(self, width=1280, height=900):
        self.size = f'{width},{height}'
        self.numbers = itertools.count(1)
        self.errors = []

    @staticmethod
    def program():
        return shutil.which('chromium') or shutil.which('chromium-browser') or shutil.which('google-chrome')

    def __enter__(self):
        self.folder = tempfile.mkdtemp(prefix='verbatim-browser-')
        # It reads commands from descriptor 3 and writes answers to 4.
        to_read, self.to_write = os.pipe()
        self.to_read, to_write = os.pipe()

        def place():
            # Duplicated first: an end of one pipe may stand where the other's has to go.
            read, write = os.dup(to_read), os.dup(to_write)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [self.program(), '--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--no-first-run',
             '--remote-debugging-pipe', f'--user-data-dir={self.folder}', f'--window-size={self.size}', 'about:blank'],
            preexec_fn=place, close_fds=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env={**os.environ, 'HOME': self.folder})
        os.close(to_read)
        os.close(to_write)
        self.buffer = b''
        self.session = None
        target = self.call('Target.createTarget', url='about:blank')['targetId']
        self.session = self.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
        for domain in ('Page', 'Runtime', 'Log', 'Network'):
            self.call(domain + '.enable')
        return self

    def __exit__(self, *_):
        os.close(self.to_write)
        os.close(self.to_read)
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def read(self):
        while b'\0' not in self.buffer:
            more = os.read(self.to_read, 1 << 16)
            if not more:
                raise EOFError('the browser has ended')
            self.buffer += more
        message, self.buffer = self.buffer.split(b'\0', 1)
        return json.loads(message)

    def note(self, message):
        """What goes wrong in the page, and what it wants from the network."""
        method, params = message.get('method'), message.get('params', {})
        if method == 'Runtime.exceptionThrown':
            self.errors.append(params['exceptionDetails'].get('exception', {}).get('description', 'an exception'))
        elif method == 'Log.entryAdded' and params['entry']['level'] == 'error':
            self.errors.append(params['entry']['text'])
        elif method == 'Network.requestWillBeSent' and not params['request']['url'].startswith(('file:', 'about:')):
            self.errors.append('asks the network for ' + params['request']['url'][:80])

    def call(self, method, **params):
        number = next(self.numbers)
        message = {'id': number, 'method': method, 'params': params}
        if self.session:
            message['sessionId'] = self.session
        text = json.dumps(message).encode() + b'\0'
        while text:
            text = text[os.write(self.to_write, text):]
        while True:
            answer = self.read()
            if answer.get('id') == number:
                if 'error' in answer:
                    raise RuntimeError(f'{method}: {answer["error"]}')
                return answer['result']
            self.note(answer)

    def open(self, path):
        self.call('Page.navigate', url='file://' + path)
        deadline = time.monotonic() + 60
        while self.run('document.readyState + location.protocol') != 'completefile:':
            if time.monotonic() > deadline:
                raise TimeoutError(path)
            time.sleep(0.05)

    def run(self, expression):
        """The value of an expression of the page's."""
        result = self.call('Runtime.evaluate', expression=expression, returnByValue=True, awaitPromise=True)
        if 'exceptionDetails' in result:
            raise RuntimeError(f'{expression}: {result["exceptionDetails"]}')
        return result['result'].get('value')

    def press(self, key, text=None):
        single = key if len(key) == 1 else ''
        self.call('Input.dispatchKeyEvent', type='keyDown', key=key, text=text if text is not None else single)
        self.call('Input.dispatchKeyEvent', type='keyUp', key=key)

    def type(self, text):
        for letter in text:
            self.press(letter)

    def prefer(self, scheme):
        self.call('Emulation.setEmulatedMedia', features=[{'name': 'prefers-color-scheme', 'value': scheme}])

    def screenshot(self, path):
        with open(path, 'wb') as file:
            file.write(base64.b64decode(self.call('Page.captureScreenshot', format='png')['data']))
