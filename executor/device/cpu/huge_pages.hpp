#pragma once

#include <string>

namespace zeroplan::executor::cpu {

// Whether memory is faster touched for the first time in huge pages than in small ones. It is, some four times,
// but on a virtual machine that reports its free memory to the host: what is reported are free huge pages, the
// host takes them away, and gives them back in small pieces at a fault each. `order`: what the kernel says of
// the smallest pieces that it reports (/sys/module/page_reporting/parameters/page_reporting_order): a power of
// two of pages, or a number larger than any where it reports none; empty where there is no such file.
bool huge_pages_pay(const std::string& order);

// On this machine.
bool huge_pages_pay();

}  // namespace zeroplan::executor::cpu
