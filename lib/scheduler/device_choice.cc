#include "lib/scheduler/device_choice.h"

#include <algorithm>

namespace fusionllm::scheduler {

std::vector<int> WithNeighbours(const Problem& problem, const std::vector<int>& devices) {
  if (devices.size() >= kMaxSearchedDevices) return devices;
  const DirectedLinks& links = problem.links();
  std::vector<char> listed(problem.request().devices.size(), 0);
  for (int device : devices) listed[device] = 1;
  std::vector<char> usable(listed.size(), 0);
  for (int device : problem.usable()) usable[device] = 1;
  size_t room = kMaxSearchedDevices - devices.size();
  const size_t for_each_kind = 1 + room / devices.size();
  std::vector<int> order;
  for (size_t s = 0; s < devices.size(); ++s) {
    order.push_back(devices[s]);
    const int kind = links.kind(devices[s]);
    if (s + 1 < devices.size() && links.kind(devices[s + 1]) == kind) continue;
    size_t more = for_each_kind;
    for (int device : links.members(kind)) {
      if (room == 0 || more == 0) break;
      if (listed[device] || !usable[device]) continue;
      listed[device] = 1;
      order.push_back(device);
      --room;
      --more;
    }
  }
  return order;
}

std::vector<int> DeviceChoice(const Problem& problem, const std::vector<int>& devices) {
  if (problem.usable().size() <= kMaxSearchedDevices) return problem.usable();
  std::vector<int> choice = WithNeighbours(problem, devices);
  std::sort(choice.begin(), choice.end());
  return choice;
}

std::vector<std::vector<int>> DeviceWindows(const Problem& problem) {
  const std::vector<int>& usable = problem.usable();
  std::vector<std::vector<int>> windows;
  for (size_t begin = 0;; begin += kMaxSearchedDevices / 2) {
    const size_t end = std::min(begin + kMaxSearchedDevices, usable.size());
    windows.emplace_back(usable.begin() + begin, usable.begin() + end);
    if (end == usable.size()) return windows;
  }
}

}  // namespace fusionllm::scheduler
