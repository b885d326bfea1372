// SPDX-License-Identifier: MIT
/*
 * dpacc: compile the inputs, then leave objects (-c), libraries (-gen-libs) or an application's
 * archive.
 */
#include "dpacc.h"

#include <signal.h>
#include <string.h>

static const char *object_name(const struct options *opt, const struct unit *unit)
{
	return opt->output ? opt->output : mem_printf("%s.dpa.o", unit->base);
}

/* Where it can be written at all, and is not what is read. */
static int check_output(const struct options *opt, const char *to)
{
	const struct list *read[] = { &opt->inputs, &opt->device_libs };

	for (int i = 0; i < 2; i++) {
		for (int j = 0; j < read[i]->n; j++) {
			if (!same_file(read[i]->v[j], to))
				continue;
			say("%s: cannot write the output: it is an input, too", to);
			return -1;
		}
	}
	return output_check(to);
}

static int check_outputs(const struct options *opt, const struct unit *units)
{
	if (opt->gen_libs)
		return check_output(opt, mem_printf("%s_device.a", opt->output)) ||
		       check_output(opt, mem_printf("%s_host.a", opt->output));
	if (!opt->compile_only)
		return check_output(opt, opt->output);
	for (int i = 0; i < opt->inputs.n; i++)
		if (check_output(opt, object_name(opt, &units[i])))
			return -1;
	return 0;
}

static int leave_objects(const struct options *opt, const struct unit *units)
{
	for (int i = 0; i < opt->inputs.n; i++) {
		const char *object = unit_pack(opt, &units[i]);

		if (!object || output_add(object, object_name(opt, &units[i])))
			return -1;
	}
	return output_commit();
}

static int work(const struct options *opt)
{
	struct unit *units;

	if (work_begin(opt) || units_make(opt, &units) || check_outputs(opt, units))
		return -1;
	for (int i = 0; i < opt->inputs.n; i++)
		if (unit_compile(opt, &units[i]))
			return -1;
	if (opt->compile_only)
		return leave_objects(opt, units);
	if (opt->gen_libs)
		return make_libraries(opt, units, opt->inputs.n);
	return link_app(opt, units, opt->inputs.n);
}

int main(int argc, char **argv)
{
	struct options opt = { 0 };
	int ret;

	signal(SIGCHLD, SIG_DFL); /* who ignores it gets no exit codes of the programs below */
	options_parse(&opt, argc, argv);
	ret = work(&opt);
	work_end();
	return ret ? DPACC_FAILED : 0;
}
