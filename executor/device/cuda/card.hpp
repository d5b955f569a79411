#pragma once

#include <string>

namespace zeroplan::executor::cuda {

// One GPU, as CUDA numbers those that CUDA_VISIBLE_DEVICES leaves.
struct Card {
  int ordinal = 0;
  std::string name;         // the driver's, or "GPU" where it says none
  std::string pci_address;  // "0000:1b:00.0"; empty where the driver does not say
  int sm = 0;               // compute capability, 10 major + minor
  int multiprocessors = 0;
  int clock_khz = 0;  // the highest; 0 where it is not known
};

// Makes it the calling thread's. Throws NotPossible, with what to do, where there is no driver or too old a one, no such GPU,
// or one that this build has no kernels for.
Card open_card(int ordinal);

// How many there are; throws as open_card().
int count_cards();

}  // namespace zeroplan::executor::cuda
