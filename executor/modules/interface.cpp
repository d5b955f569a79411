#include "executor/module_interface.hpp"

extern "C" const char* zeroplan_module_interface() { return ZEROPLAN_MODULE_INTERFACE; }
