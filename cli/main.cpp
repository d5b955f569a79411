#include <iostream>

#include "cli/dispatch.hpp"

int main(int argc, char** argv) {
  return zeroplan::cli::run(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc), std::cout,
                            std::cerr);
}
