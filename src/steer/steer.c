#include "steer/steer.h"
