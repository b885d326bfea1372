#!/usr/bin/env python3
"""Real programs that have nothing to do with RDMA: what they print and how they end is the same without Verbatim, under
`verbatim run`, and with a card open in each of their processes (holder.c).

usage: strangers.py [--nobody] NAME HOLDER [PROGRAM]

Each case is a script for sh, in an empty folder; what it prints must not depend on time, addresses or pids.
"""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

import peers

# Six sessions that write at the same time, then queries by parallel workers.
POSTGRESQL = r'''
PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -1):$PATH
initdb -D data -U test -A trust --no-sync --locale=C > initdb.log 2>&1 || { cat initdb.log; exit 1; }
trap 'pg_ctl -D data -m immediate stop > /dev/null 2>&1' EXIT
pg_ctl -D data -w -l server.log -o "-k $PWD -h '' -F -c dynamic_shared_memory_type=posix" start > start.log || { cat start.log server.log; exit 1; }
sql() { psql -h "$PWD" -U test -d postgres -X -q -A -t -v ON_ERROR_STOP=1 "$@"; }
sql -c 'create table t (session int, n int, text text)' || { cat server.log; exit 1; }
sessions=
for i in 1 2 3 4 5 6; do
    { echo 'begin;'; echo "insert into t select $i, n, repeat(md5(n::text), 3) from generate_series(1, 5000) n;"; echo 'commit;'
      echo "update t set n = n + 1 where session = $i and n % 10 = 0;"; echo "select count(*), sum(n) from t where session = $i;"
    } | sql > "session.$i" 2>&1 &
    sessions="$sessions $!"
done
for pid in $sessions; do wait "$pid" || { cat session.* server.log; exit 1; }; done
cat session.*
{ echo "set max_parallel_workers_per_gather = 3; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0;"
  echo "explain (costs off) select sum(n), count(distinct text) from t;"
  echo "select sum(n), count(distinct text), sum(length(text)) from t;"
  echo "select count(*) from t a join t b on a.n = b.n and a.session = b.session;"
  echo "create index on t (n); analyze t; vacuum t; select count(*) from t where n between 100 and 200;"
} | sql
sql -c "select pg_cancel_backend(pg_backend_pid())" 2>&1
sql -c "set statement_timeout = 50; select pg_sleep(60)" 2>&1
pg_ctl -D data -w -m fast stop > stop.log; echo "ended with $?"
! grep -E 'PANIC|was terminated by signal' server.log
'''

REDIS = r'''
start() {
    redis-server --port 0 --unixsocket "$PWD/s" --dir "$PWD" --save '' --logfile "$PWD/log" &
    pid=$!
    for i in $(seq 600); do [ "$(redis-cli -s s ping 2> /dev/null)" = PONG ] && return; sleep 0.1; done
    cat log; exit 1
}
start
seq 20000 | awk '{ print "SET key:" $1 " value:" $1 * 7; if ($1 % 100 == 0) print "RPUSH list " $1 }' | redis-cli -s s --pipe | tail -1
redis-cli -s s bgsave
for i in $(seq 600); do redis-cli -s s info persistence | grep -q rdb_bgsave_in_progress:0 && break; sleep 0.1; done
redis-cli -s s info persistence | grep rdb_last_bgsave_status
redis-cli -s s set late 1
redis-cli -s s shutdown nosave
wait $pid; echo "ended with $?"
start
redis-cli -s s dbsize
redis-cli -s s mget key:1 key:20000 late
redis-cli -s s llen list
redis-cli -s s debug sleep 0 > /dev/null
redis-cli -s s shutdown nosave
wait $pid; echo "ended with $?"
! grep -i 'crash\|signal' log | grep -v 'User requested\|Received'
'''

MULTIPROCESSING = r'''
cat > work.py <<'END'
import hashlib, multiprocessing, os, signal, sys, time

def work(n):
    return hashlib.sha256(bytes([n]) * 300000).hexdigest()

def talk(pipe, event):
    event.wait()
    pipe.send(sorted(os.environ.get('STRANGER', '')))
    pipe.close()

def main():
    print(multiprocessing.get_start_method())
    with multiprocessing.Pool(3) as pool:
        print(pool.map(work, range(9)))
    ours, theirs = multiprocessing.Pipe()
    event = multiprocessing.Event()
    child = multiprocessing.Process(target=talk, args=(theirs, event))
    child.start()
    event.set()
    print(ours.recv())
    child.join()
    print(child.exitcode)
    with multiprocessing.Manager() as manager:
        shared = manager.dict()
        shared['x'] = [1, 2]
        print(dict(shared))
    killed = multiprocessing.Process(target=time.sleep, args=(600,))
    killed.start()
    killed.terminate()
    killed.join()
    print(killed.exitcode == -signal.SIGTERM)

if __name__ == '__main__':
    multiprocessing.set_start_method(sys.argv[1])
    main()
END
STRANGER=hello python3 work.py fork && STRANGER=hello python3 work.py spawn && python3 work.py forkserver
'''

GCC = r'''
for i in $(seq 6); do
    printf '#include <stdlib.h>\nint f%d(int n)\n{\n\tint *p = malloc(n * sizeof(int)), s = 0;\n\n\tfor (int i = 0; i < n; i++)\n\t\ts += p[i] = i * %d;\n\tfree(p);\n\treturn s;\n}\n' $i $i > f$i.c
done
printf '#include <stdio.h>\nint f1(int n), f6(int n);\nint main(void)\n{\n\treturn printf("%%d %%d\\n", f1(100), f6(1000)) < 0;\n}\n' > main.c
printf 'all: program\nprogram: main.o f1.o f2.o f3.o f4.o f5.o f6.o\n\t@gcc -flto -O2 -o $@ $^\n%%.o: %%.c\n\t@gcc -O2 -flto -c $<\n' > Makefile
make -s -j2 && ./program
printf 'int main(void) { return x; }\n' > wrong.c
gcc -c wrong.c; echo "ended with $?"
objdump -d --no-show-raw-insn f1.o > /dev/null; nm program | grep ' T main' | cut -d' ' -f2-
'''

GIT = r'''
git init -q . && git config user.name a && git config user.email a@b && git config gc.auto 0
export GIT_AUTHOR_DATE='2020-01-01 00:00 +0000' GIT_COMMITTER_DATE='2020-01-01 00:00 +0000'
for i in 1 2 3 4 5 6 7 8; do seq $i $((i + 5000)) > f; git add f; git commit -qm $i; done
git gc -q --aggressive && git fsck --no-progress && git log --format=%H,%s && git count-objects -v | grep -v size
git clone -q . ../clone.$$ && git -C ../clone.$$ rev-parse HEAD; rm -rf ../clone.$$
git grep -c 4999
'''

SQLITE = r'''
sqlite3 db 'pragma journal_mode = wal; create table t (n integer primary key, text text);
with recursive c(n) as (select 1 union all select n + 1 from c where n < 50000) insert into t select n, hex(n * 7919) from c;'
for i in 1 2 3; do
    sqlite3 -cmd '.timeout 60000' db "begin immediate; update t set text = text || '$i' where n % 3 = $i - 1; commit;" & pids="$pids $!"
done
for pid in $pids; do wait "$pid" || exit 1; done
sqlite3 db 'select count(*), sum(length(text)) from t; create index i on t (text); select n from t where text > "3" order by text limit 5;
pragma integrity_check; vacuum; select max(n) from t;'
sqlite3 db 'select * from nothing'; echo "ended with $?"
'''

NODE = r'''
cat > work.js <<'END'
const { Worker, isMainThread, parentPort } = require('worker_threads');
const { execFileSync, fork } = require('child_process');
const crypto = require('crypto');
const sum = (n) => crypto.createHash('sha256').update(Buffer.alloc(1 << 20, n)).digest('hex');
if (!isMainThread) {
    parentPort.postMessage(sum(3));
} else if (process.argv[2] === 'child') {
    process.send(sum(4));
} else {
    const worker = new Worker(__filename);
    worker.on('message', (text) => {
        console.log(text, execFileSync('echo', ['child']).toString().trim());
        let total = 0;
        for (let i = 0; i < 3e6; i++) total = (total * 31 + i) % 1000003;
        console.log(total, new Array(200000).fill({}).map((x, i) => ({ i })).length);
        fork(__filename, ['child']).on('message', (m) => console.log(m)).on('exit', (code) => console.log(code));
        process.on('SIGUSR2', () => console.log('signal')); process.kill(process.pid, 'SIGUSR2');
    });
}
END
node work.js; echo "ended with $?"
node -e 'process.kill(process.pid, "SIGTERM"); setTimeout(() => {}, 10000)'; echo "ended with $?"
'''

# The virtual machine takes SIGSEGV for null pointers and for stops of its threads.
JAVA = r'''
cat > Work.java <<'END'
import java.util.*;
import java.util.stream.*;
public class Work {
    static class Node { Node next; int value; }
    static int depth(int n) { return n + depth(n + 1); }
    public static void main(String[] args) throws Exception {
        int caught = 0;
        for (int i = 0; i < 200000; i++) {
            Node node = i % 2 == 0 ? null : new Node();
            try { node.value++; } catch (NullPointerException e) { caught++; }
        }
        System.out.println(caught);
        try { depth(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
        List<Thread> threads = new ArrayList<>();
        long[] sums = new long[4];
        for (int t = 0; t < 4; t++) {
            int me = t;
            Thread thread = new Thread(() -> { for (int i = 0; i < 300000; i++) sums[me] += new int[100].length + i; });
            threads.add(thread);
            thread.start();
        }
        for (int i = 0; i < 5; i++) System.gc();
        for (Thread thread : threads) thread.join();
        System.out.println(Arrays.toString(sums));
        System.out.println(IntStream.range(0, 1000000).parallel().mapToLong(i -> i % 7).sum());
        Process process = new ProcessBuilder("echo", "child").start();
        System.out.println(new String(process.getInputStream().readAllBytes()).trim() + process.waitFor());
    }
}
END
javac Work.java && java -Xmx256m Work; echo "ended with $?"
'''

# name: what must be installed, the script
CASES = {
    'postgresql': (['/usr/lib/postgresql/*/bin/postgres', 'psql'], POSTGRESQL),
    'redis': (['redis-server', 'redis-cli'], REDIS),
    'multiprocessing': (['python3'], MULTIPROCESSING),
    'gcc': (['gcc', 'make'], GCC),
    'git': (['git'], GIT),
    'sqlite': (['sqlite3'], SQLITE),
    'node': (['node'], NODE),
    'java': (['java', 'javac'], JAVA),
    'changes': ([], '"$PROGRAM"; echo "ended with $?"'),
}


def run(world, prefix, script, **variables):
    where = tempfile.mkdtemp(dir=world.home)
    if world.ids:
        os.chown(where, world.ids['user'], world.ids['group'])
    env = {**world.environment(), 'LC_ALL': 'C', **variables}
    done = subprocess.run(prefix + ['sh', '-c', script], cwd=where, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, errors='replace', timeout=world.seconds, check=False, **world.ids)
    return done.returncode, done.stdout.replace(where, '.'), done.stderr.replace(where, '.')


def check(world, name, holder, program):
    needed, script = CASES[name]
    for tool in needed:
        if not shutil.which(tool) and not glob.glob(tool):
            raise peers.Skip(f'{os.path.basename(tool)} is not installed')
    says = os.path.join(world.home, 'says')
    verbatim = world.command([])
    variables = {'PROGRAM': world.bring(program)} if program else {}
    held = verbatim + ['sh', '-c', 'LD_PRELOAD="$0:$LD_PRELOAD" exec "$@"', world.bring(holder)]
    plain = run(world, [], script, **variables)
    if plain[0]:
        raise peers.Failure(f'{name}: fails without Verbatim: {plain}')
    for how, prefix in (('verbatim run', verbatim), ('verbatim run, with a card', held)):
        ours = run(world, prefix, script, HOLDER_SAYS=says, **variables)
        if ours != plain:
            raise peers.Failure(f'{name} by {how}:\n{show(ours)}\n--- without Verbatim:\n{show(plain)}')
    with open(says, encoding='ascii') as lines:
        cards = lines.read().split('\n')
    if set(cards) != {'card', ''}:
        raise peers.Failure(f'{name}: not every process had a card: {set(cards)}')
    print(f'{name}: {len(plain[1].splitlines())} lines, {len(cards) - 1} processes with a card')


def show(result):
    code, stdout, stderr = result
    return f'exit code {code}\n{stdout[-4000:]}\n{stderr[-4000:]}'


def main():
    arguments = sys.argv[1:]
    nobody = '--nobody' in arguments
    name, holder, *program = [word for word in arguments if word != '--nobody']
    # PostgreSQL refuses to run as root.
    with peers.World(unprivileged=nobody and os.geteuid() == 0) as world:
        check(world, name, os.path.abspath(holder), os.path.abspath(program[0]) if program else None)


peers.main(main)
