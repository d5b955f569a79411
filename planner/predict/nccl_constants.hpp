#pragma once

#include <array>

// What NCCL itself counts when it chooses an algorithm, and what measurements add to that. Times in
// microseconds; where there are three, they are for the protocols LL, LL128 and Simple.
// Source unless said: GitHub NVIDIA/nccl v2.28.9-1 src/graph/tuning.cc lines 130-420, 600-640.
namespace zeroplan::predict::nccl {

inline constexpr std::array<double, 3> kRingBaseUs{6.6, 14.0, 8.4};
inline constexpr std::array<double, 3> kRingNvlinkHopUs{0.6, 1.9, 3.4};
inline constexpr std::array<double, 3> kRingPcieHopUs{1.0, 2.5, 5.7};
inline constexpr std::array<double, 3> kProtocolRate{0.5, 0.92, 1.0};  // of the ring's rate

// Over nodes only Simple is counted. EFA has no other (https://github.com/aws/aws-ofi-nccl/issues/76), and
// the one published table by size over nodes (p6-b200, hardware_profiles/p6-b200.yaml) follows it, while
// LL128 would be twice too fast at 16 MiB.
inline constexpr double kSimpleBaseUs = 8.4;
inline constexpr double kNetworkHopUs = 14;
inline constexpr double kTreeHopUs = 4;  // inside a node
inline constexpr double kTreeRate = 0.92;

// Longer latency of a ring all-reduce over nodes; before Ampere (compute capability 8) the other.
inline constexpr double kInternodeAllReduce = 1.4;
inline constexpr double kInternodeAllReduceBeforeAmpere = 1.9;
inline constexpr double kAmpere = 8;

// Correction of a tree's rate at 64 B, 128 B ... 256 MiB.
inline constexpr std::array<double, 23> kTreeCorrection{0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.8,
                                                        0.7, 0.6, 0.6, 0.5, 0.5, 0.5, 0.5, 0.6,
                                                        0.7, 0.8, 0.7, 0.7, 0.8, 0.9, 0.9};
inline constexpr double kTreeCorrectionFirstBytes = 64;

// What a link carries of its data-sheet rate where NCCL's own figure for it is not known: 20 of 25 GB/s for a
// link of V100 and A100, 20.6 of 25 for H100 (src/graph/topo.h lines 15-32).
inline constexpr double kLinkFraction = 0.8;
// Three A100 over PCIe gen4 reached 20 of 31 GB/s (https://github.com/NVIDIA/nccl-tests/issues/178).
inline constexpr double kPcieFraction = 0.65;

// What collectives over nodes reach of the wire. Large messages: 192 of 200 GB/s (2 DGX A100, nccl issue
// 812), 381.8 of 400 (4 p6-b200, ml-engineering network/README.md), 46 to 49 of 50 (an NDR interface,
// nccl-tests issues 290, 267), 86 to 91 of 100 (2 nodes of 4 HDR200, nccl-tests issue 175), 350 of 400 (248
// nodes of H200, nccl-tests issue 283): the mean of the five.
inline constexpr double kWireFraction = 0.925;

// NCCL's form is 15 to 35 % fast from 4 to 64 MiB. Time that an all-reduce of 8 ranks takes beyond it, in
// microseconds per root of a byte: fitted from 1 MiB up to the table of 8 A100 in Azure's
// AI-benchmarking-guide (hardware_profiles/a100-80gb.yaml), whose ring is the nearest to links without a
// table.
inline constexpr double kMissingUsPerRootByte = 0.0225;
inline constexpr double kMissingRanks = 8;

}  // namespace zeroplan::predict::nccl
