#include "lib/scheduler/neighbour_orders.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace fusionllm::scheduler {

std::vector<std::vector<int>> NeighbourOrders(const std::vector<int>& devices, const std::vector<int>& choice, bool may_shrink,
                                              bool may_grow) {
  std::vector<std::vector<int>> orders;
  std::vector<int> unused;
  for (int device : choice) {
    if (std::find(devices.begin(), devices.end(), device) == devices.end()) unused.push_back(device);
  }
  const size_t count = devices.size();
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = a + 1; b < count; ++b) {
      orders.push_back(devices);
      std::swap(orders.back()[a], orders.back()[b]);
    }
    for (size_t b = 0; b < count; ++b) {
      if (b == a || b == a + 1 || b + 1 == a) continue;
      orders.push_back(devices);
      orders.back().erase(orders.back().begin() + a);
      orders.back().insert(orders.back().begin() + b, devices[a]);
    }
    for (int device : unused) {
      orders.push_back(devices);
      orders.back()[a] = device;
    }
    if (may_shrink && count > 1) {
      orders.push_back(devices);
      orders.back().erase(orders.back().begin() + a);
    }
  }
  for (size_t a = 0; may_grow && a <= count; ++a) {
    for (int device : unused) {
      orders.push_back(devices);
      orders.back().insert(orders.back().begin() + a, device);
    }
  }
  return orders;
}

}  // namespace fusionllm::scheduler
