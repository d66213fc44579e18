// Which of many devices a search looks at. Pure; linear in the devices there are.
#pragma once

#include <cstddef>
#include <vector>

#include "lib/scheduler/problem.h"

namespace fusionllm::scheduler {

// Devices that orders and cuts are searched over: beyond, those near the ones that a fill has chosen. The program over cuts is quadratic in
// them.
inline constexpr size_t kMaxSearchedDevices = 64;

// The devices in their order, each kind followed by as many more of it as make the list a long one.
std::vector<int> WithNeighbours(const Problem& problem, const std::vector<int>& devices);

// Whom a change of these devices may bring in, themselves included: everybody, or as many near them as a search can go through.
std::vector<int> DeviceChoice(const Problem& problem, const std::vector<int>& devices);

// Stretches of the declared order, each beginning in the middle of the one before; every usable device is in one.
std::vector<std::vector<int>> DeviceWindows(const Problem& problem);

}  // namespace fusionllm::scheduler
