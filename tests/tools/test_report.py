#!/usr/bin/env python3
"""verbatim report: the page of a timeline, opened in Chromium. Arguments: the program to record; and, optionally, where a
screenshot goes."""
import json
import os
import subprocess
import sys
import tempfile

from browser import Browser

VERBATIM = os.path.join(os.environ['VERBATIM_STAGE'], 'bin', 'verbatim')
TRACED = os.path.abspath(sys.argv[1])
SKIP = 77


class Failure(Exception):
    """A check that did not hold."""


def check(held, message):
    if not held:
        raise Failure(message)


def verbatim(*arguments, code=0):
    done = subprocess.run([VERBATIM, *arguments], capture_output=True, text=True, timeout=120, check=False)
    check(done.returncode == code, f'verbatim {arguments}: {done.returncode}, not {code}\n{done.stderr}')
    return done


def span(name, cat, tid, ts, dur, **args):
    return {'ph': 'X', 'pid': 7, 'tid': tid, 'ts': ts, 'dur': dur, 'cat': cat, 'name': name, 'args': args}


def moment(name, cat, tid, ts, **args):
    return {'ph': 'i', 's': 't', 'pid': 7, 'tid': tid, 'ts': ts, 'cat': cat, 'name': name, 'args': args}


EU = 1 << 24
# Known in all its numbers: nesting calls, two EUs, a failed RPC, packets, trouble, and names that want to be markup.
KNOWN = {'otherData': {'lost': 5}, 'traceEvents': [
    {'ph': 'M', 'pid': 7, 'name': 'process_name', 'args': {'name': '<b>prog</b>'}},
    {'ph': 'M', 'pid': 7, 'tid': 70, 'name': 'thread_name', 'args': {'name': '</script><script>window.hacked = 1</script>'}},
    {'ph': 'M', 'pid': 7, 'tid': EU, 'name': 'thread_name', 'args': {'name': 'EU 0'}},
    {'ph': 'M', 'pid': 7, 'tid': EU + 1, 'name': 'thread_name', 'args': {'name': 'EU 1'}},
    span('flexio_process_call', 'call', 70, 100, 300), span('sum', 'rpc', 70, 110, 250, status=1),
    span('RPC', 'eu', EU, 120, 200, thread=1, instructions=1000),
    moment('EH_1_0_1', 'ready', 70, 400, thread=2), span('EH_1_0_1', 'eu', EU + 1, 450, 10, thread=2, instructions=70),
    moment('EH_1_0_1', 'ready', 70, 500, thread=2), span('EH_1_0_1', 'eu', EU + 1, 530, 30, thread=2, instructions=80),
    moment('WRITE', 'wqe', 70, 600, qp='0x40', bytes=64, index=0), moment('success', 'cqe', 70, 602, qp='0x40', cq=1, bytes=64, queue='send', index=0),
    moment('WRITE', 'wqe', 70, 610, qp='0x40', bytes=64, index=1),
    moment('remote access error', 'cqe', 70, 614, qp='0x40', cq=1, bytes=0, queue='send', index=1),
    moment('frame', 'lost', 70, 700, object='0x9'), moment('sent again', 'retry', 70, 710, qp='0x40', psn=3),
    moment('sent again', 'retry', 70, 1000, qp='0x40', psn=3)]}

TABLE = "[...document.querySelectorAll('#%s tbody tr')].map(r => [...r.cells].map(c => c.textContent))"


def check_known(page):
    with open('known.json', 'w', encoding='utf-8') as file:
        json.dump(KNOWN, file)
    verbatim('report', 'known.json', '-o', 'known.html')
    page.open(os.path.abspath('known.html'))
    check(page.run('window.hacked') is None, 'a name became a script')
    check(page.run("document.getElementById('summary').textContent") == '14 events, 1 processes, 3 tracks, 1.00 ms',
          page.run("document.getElementById('summary').textContent"))
    threads = page.run(TABLE % 'threads')
    check(threads[0][1:] == ['<b>prog</b> 7', 'host', '1', '300.0 us', '300.0 us', '300.0 us', '0'], f'{threads[0]}')
    check(threads[1] == ['RPC (thread 1)', '<b>prog</b> 7', 'device', '1', '200.0 us', '200.0 us', '200.0 us', '1000'],
          f'{threads[1]}')
    check(threads[2] == ['EH_1_0_1 (thread 2)', '<b>prog</b> 7', 'device', '2', '40.0 us', '20.0 us', '30.0 us', '150'],
          f'{threads[2]}')
    trouble = {row[0]: row[3] for row in page.run(TABLE % 'trouble')}
    check(trouble == {'RPC sum failed': '1', 'remote access error': '1', 'lost: frame': '1', 'sent again': '2',
                      'events that found no room in the recording': '5'}, f'{trouble}')
    latencies = latencies_of(page)
    check(latencies['Device thread, from ready to run'] == '2 · median 50.0 us · 99 % 50.0 us · most 50.0 us', f'{latencies}')
    check(latencies['Work request, to its completion or that of a later one'].startswith('2 · median 4.00 us'), f'{latencies}')
    check(latencies['RPC, from call to return'].startswith('1 · median 250.0 us'), f'{latencies}')
    return page


def show(page, events, name='shown'):
    with open(name + '.json', 'w', encoding='utf-8') as file:
        json.dump({'traceEvents': events}, file)
    verbatim('report', name + '.json', '-o', name + '.html')
    page.open(os.path.abspath(name + '.html'))


def latencies_of(page):
    return dict(page.run("[...document.querySelectorAll('#latencies section')].map(s => "
                         "[s.querySelector('h3').textContent, s.querySelector('.figures').textContent])"))


def check_latencies(page):
    """A work request is answered by its own completion or a later one of its queue, a thread by its own process's."""
    show(page, [moment('WRITE', 'wqe', 1, 10 * i, qp='0x1', index=i) for i in range(4)] +
         [moment('WRITE', 'wqe', 1, 35, qp='0x1', index=3)] +  # sent again
         [moment('success', 'cqe', 1, 5, qp='0x1', queue='receive', index=0),
          moment('success', 'cqe', 1, 40, qp='0x1', queue='send', index=3),
          moment('f', 'ready', 1, 100, process=1, thread=1), moment('f', 'ready', 1, 110, process=2, thread=1),
          span('f', 'eu', EU, 111, 1, process=2, thread=1, instructions=5),
          span('f', 'eu', EU, 150, 1, process=1, thread=1, instructions=7)])
    found = latencies_of(page)
    check(found['Work request, to its completion or that of a later one'] ==
          '4 · median 30.0 us · 99 % 40.0 us · most 40.0 us', f'{found}')
    check(found['Device thread, from ready to run'].endswith('most 50.0 us'), f'{found}')
    threads = {row[0]: row[7] for row in page.run(TABLE % 'threads')}
    check(threads == {'f (thread 1 of process 2)': '5', 'f (thread 1 of process 1)': '7'}, f'{threads}')


COLORS = """(() => { const c = document.getElementById('canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
             const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
             return seen.size; })()"""


def check_many_tracks(page):
    """Thousands of threads are drawn, wherever the chart is scrolled to."""
    show(page, [span('call', 'call', tid, tid, 1) for tid in range(5000)])
    for part in (0, .5, 1):
        page.run(f"chart.scrollTop = {part} * chart.scrollHeight; new Promise(done => setTimeout(done, 100))")
        page.run(f'setView(chart.scrollTop / chart.scrollHeight * 5000 - 50, chart.scrollTop / chart.scrollHeight * 5000 + 100)')
        check(page.run(COLORS) > 8, f'the canvas is empty at {part}')
    check(page.run('document.getElementById("canvas").height') < 5000, 'a canvas that no browser draws')
    page.press('/')
    page.type('4999')
    page.run('select(tracks[2500].spans[0])')
    check(page.run('tracks[2500].y >= chart.scrollTop && tracks[2500].y < chart.scrollTop + chart.clientHeight'), 'the track is not in sight')


# What a frame does: rectangles, looks at the time of an event, and questions that make the browser do its layout.
COUNT = """(() => { const found = { rectangles: 0, looks: 0, layouts: 0 }, fill = CanvasRenderingContext2D.prototype.fillRect;
            CanvasRenderingContext2D.prototype.fillRect = function (...a) { found.rectangles++; return fill.apply(this, a); };
            for (const t of tracks) for (const e of [...t.spans, ...t.moments]) {
                const ts = e.ts; Object.defineProperty(e, 'ts', { get() { found.looks++; return ts; } }); }
            const read = Object.getOwnPropertyDescriptor(Element.prototype, 'clientWidth').get;
            Object.defineProperty(Element.prototype, 'clientWidth', { get() { found.layouts++; return read.call(this); } });
            return window.found = found; })()"""
LARGE = 200000


def check_large(page):
    """A frame's work is bounded by pixels, not by events; and an error is seen among a hundred thousand successes."""
    events = []
    for i in range(LARGE // 4):
        events += [span('call', 'call', 1, 4 * i, 2.5), span('inner', 'rpc', 1, 4 * i + .5, 1),
                   moment('success', 'cqe', 2, 4 * i + 1, qp='0x1', queue='send', index=i),
                   span('f', 'eu', EU, 4 * i + 2, 1, process=1, thread=1, instructions=5)]
    events[LARGE // 2 + 2]['name'] = 'remote access error'
    show(page, events, 'large')
    check(page.run("new Promise(done => { const look = () => document.querySelector('#threads tbody') ? done(all.length) : "
                   "setTimeout(look, 20); look(); })") == LARGE, 'the tables of a large trace')
    error = page.run("(() => { const t = tracks[1]; setView(0, END); const c = document.getElementById('canvas'), s = c.width / c.clientWidth;"
                     "const d = [...context.getImageData((x(t.moments.find(isError).ts)) * s, (t.y + 6) * s, 1, 1).data].slice(0, 3);"
                     "return 'rgb(' + d.join(', ') + ')'; })()")
    wanted = page.run("(() => { const i = document.createElement('i'); i.style.color = 'var(--error)'; document.body.append(i);"
                      "const c = getComputedStyle(i).color; i.remove(); return c; })()")
    check(error == wanted, f'the error is drawn as {error}, not {wanted}')
    page.run(COUNT)
    # 3 tracks, 4 rows, and about 1,100 pixels of each; two spans, or a tick, for a pixel, found among 2^17.
    for view_of in ('0, END', '1000, END / 2', 'END / 2, END / 2 + 100'):
        page.run('Object.assign(found, { rectangles: 0, looks: 0, layouts: 0 })')
        page.run(f'setView({view_of})')
        found = page.run('found')
        check(0 < found['rectangles'] < 15000, f'{view_of}: {found}')
        check(found['looks'] < 15000 * 25, f'{view_of}: {found}')
        check(found['layouts'] < 20, f'{view_of}: {found}')
    page.run("hidden.add('eu'); chooseShown(); draw()")
    check(page.run('tracks[2].lines[0].length') == 0, 'a category that is hidden')


def check_strange(page):
    """A trace of another tool, or a damaged one: what is no event of ours is left out, what is shown is text."""
    strange = [None, 7, 'x', [], {}, {'ph': 'M', 'pid': 1, 'name': 'process_name'}, {'ph': 'i', 'pid': 1, 'tid': 1, 'ts': '5', 'name': 'x'},
               {'ph': 'M', 'pid': 1, 'tid': 1, 'name': 'thread_name', 'args': {'name': {'toString': 1}}},
               {'ph': 'i', 'pid': 1, 'tid': 1, 'ts': 2, 'name': {'toString': 1}, 'cat': 'wqe'},
               {'ph': 'X', 'pid': 1, 'tid': 1, 'ts': 1, 'dur': -5, 'name': 'x'}, {'ph': 'B', 'pid': 1, 'tid': 1, 'ts': 1, 'name': 'x'},
               {'ph': 'X', 'pid': 1, 'tid': EU, 'ts': 1, 'dur': 5, 'cat': 'eu', 'name': 5, 'args': {'thread': {'toString': 1}}},
               {'ph': 'i', 'pid': 1, 'tid': 1, 'ts': 9e15, 'name': 'late', 'cat': 'cqe', 'args': [1]}]
    show(page, strange)
    check(page.run("document.getElementById('summary').textContent").startswith('3 events, 1 processes, 2 tracks'), 'strange events')
    # Times whose numbers are too coarse for the ruler.
    page.run('setView(9e15 - 1, 9e15)')
    page.run('step(1); walk(0, 1); search("late"); draw()')


def view(page):
    return page.run('[view.from, view.to]')


def status(page):
    return page.run("document.getElementById('status').textContent")


def check_keys(page):
    """Everything by keys: zoom, move, search, a walk through the tracks, sorting, theme, help."""
    page.run("document.getElementById('canvas').focus()")
    page.press('+')
    check(view(page) == [200, 800], f'zoom: {view(page)}')
    page.press('ArrowRight')
    check([round(v) for v in view(page)] == [320, 920], f'move: {view(page)}')
    page.press('0')
    check(view(page) == [0, 1000], f'all: {view(page)}')
    page.press('/')
    page.type('eh_1')
    check(status(page).startswith('1 of 4: EH_1_0_1 · ready'), status(page))
    page.press('Enter', '\r')
    check(status(page).startswith('2 of 4: EH_1_0_1 · eu'), status(page))
    page.press('Escape')
    page.press('N')
    check(status(page).startswith('1 of 4: '), status(page))
    page.press('ArrowDown')
    check('EU 0' in status(page) or 'EU 1' in status(page), status(page))
    page.press('Enter', '\r')
    page.run("document.querySelectorAll('#threads th button')[7].focus()")
    page.press('Enter', '\r')
    order = [row[7] for row in page.run(TABLE % 'threads')]
    check(order == ['1000', '150', '0'], f'sorted by instructions: {order}')
    theme = page.run('document.documentElement.dataset.theme')
    page.press('t')
    check(page.run('document.documentElement.dataset.theme') != theme, 'the theme')
    page.press('?')
    check(page.run("document.getElementById('keys').open"), 'help')
    page.press('Escape')


def check_themes(page):
    colors = set()
    for scheme in ('dark', 'light'):
        page.prefer(scheme)
        page.run('new Promise(done => setTimeout(done, 50))')
        check(page.run('document.documentElement.dataset.theme') == scheme, f'prefers {scheme}')
        colors.add(page.run('getComputedStyle(document.body).backgroundColor'))
        # The chart is drawn: not one colour.
        check(page.run(COLORS) > 8, 'the canvas is empty')
    check(len(colors) == 2, 'dark and light look the same')


def check_recorded(page, picture):
    verbatim('trace', '-o', 'real.json', '--', TRACED, 'work')
    verbatim('report', 'real.json')
    page.open(os.path.abspath('report.html'))
    legend = page.run("[...document.querySelectorAll('#legend label')].map(l => l.textContent)")
    check({'doorbell 11', 'wqe 11', 'cqe 14', 'sent 11'} <= set(legend), f'{legend}')
    trouble = page.run(TABLE % 'trouble')
    check(trouble[0][0] == 'remote access error' and trouble[0][3] == '1', f'{trouble}')
    if picture:
        page.prefer('light')
        page.screenshot(picture)


def check_refusals():
    with open('bad', 'w', encoding='utf-8') as file:
        file.write('["no trace"]')
    check('no timeline' in verbatim('report', 'bad', code=1).stderr, 'no trace')
    check('No such file' in verbatim('report', 'missing', code=1).stderr, 'missing')
    check('/no/such' in verbatim('report', 'known.json', '-o', '/no/such/x', code=1).stderr, 'cannot write')
    check('which trace' in verbatim('report', code=2).stderr, 'no argument')


def check_damaged(page):
    with open('cut.json', 'w', encoding='utf-8') as file:
        file.write('{"traceEvents":[{"ph":')
    verbatim('report', 'cut.json', '-o', 'cut.html')
    page.open(os.path.abspath('cut.html'))
    check('This trace is damaged' in status(page), status(page))


def main():
    if not Browser.program():
        print('there is no Chromium here')
        sys.exit(SKIP)
    picture = os.path.abspath(sys.argv[2]) if len(sys.argv) > 2 else None
    with tempfile.TemporaryDirectory() as folder, Browser() as page:
        os.chdir(folder)
        check_known(page)
        check_keys(page)
        check_themes(page)
        check_latencies(page)
        check_many_tracks(page)
        check_large(page)
        check_strange(page)
        check_recorded(page, picture)
        check_refusals()
        check_damaged(page)
        check(not page.errors, f'errors in the page: {page.errors}')
        os.chdir('/')


if __name__ == '__main__':
    try:
        main()
    except Failure as failure:
        print(f'FAILED: {failure}')
        sys.exit(1)
