/* SPDX-License-Identifier: MIT */
/*
 * A C++ host as C++ users write it: the process in an object with static lifetime, made before main, calls from
 * threads, a failed call as an exception.
 */
#include "need.h"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

extern "C" {
extern struct flexio_app *kinds_app;
extern flexio_func_t hidden, nothing, sum;
}

class Process {
public:
	explicit Process(flexio_app *app)
		: ctx(open_device("mlx5_0"), ibv_close_device)
	{
		if (flexio_process_create(ctx.get(), app, nullptr, &process))
			throw std::runtime_error("flexio_process_create");
	}
	~Process()
	{
		if (flexio_process_destroy(process))
			std::abort();
	}
	Process(const Process &) = delete;

	template <typename... Args> uint64_t call(flexio_func_t *func, Args... args)
	{
		uint64_t result = 0;

		if (flexio_process_call(process, func, &result, args...))
			throw std::runtime_error("flexio_process_call");
		return result;
	}

private:
	std::unique_ptr<ibv_context, decltype(&ibv_close_device)> ctx;
	flexio_process *process;
};

static Process early(kinds_app);

static void not_a_device_function()
{
}

int main()
{
	constexpr unsigned count = 4, calls = 500;
	std::vector<std::thread> threads;
	bool thrown = false;

	for (unsigned i = 0; i < count; i++)
		threads.emplace_back([] {
			for (unsigned n = 0; n < calls; n++)
				early.call(&nothing);
		});
	for (auto &thread : threads)
		thread.join();
	need(early.call(&hidden, uint64_t{ 0 }) == count * calls);
	flexio_log_lvl_set(FLEXIO_LOG_LVL_ERR);
	try {
		early.call(&not_a_device_function);
	} catch (const std::runtime_error &) {
		thrown = true;
	}
	need(thrown);
	{
		Process second(kinds_app);

		need(second.call(&hidden, uint64_t{ 1 }) == 1);
	}
	need(early.call(&hidden, uint64_t{ 1 }) == count * calls + 1);
	std::puts("done");
}
