// One HTML file that shows one run or compares several: loss curves, plans, timelines, links, predicted beside measured.
//
// Self-contained: style, script and drawings are inside, nothing is fetched; it follows the reader's light or dark scheme. All names and
// messages are escaped, so runs of strangers may be shown. Pure.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lib/report/run_record.h"

namespace fusionllm::report {

struct Report {
  std::string title;
  std::string introduction;                                  // a paragraph of plain text; empty: none
  std::vector<std::pair<std::string, std::string>> machine;  // "processor" -> "...", shown at the foot
  std::vector<Run> runs;                                     // the first is what the others are compared with
};

std::string ToHtml(const Report& report);

}  // namespace fusionllm::report
