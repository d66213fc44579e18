// What the checks of the documentation need to know of a Markdown page: fences, links, bold text and the anchors of headings.
//
// No whole parser: headings are those with '#', code is what stands in fences or backticks, and the form of a page beyond that is not
// looked at. Pure functions.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace fusionllm::docs {

// Lines between two fences (``` or ~~~).
struct Fence {
  int line = 0;                    // of the fence that opens it, from 1
  std::string info;                // what stands behind that: "bash network"
  std::vector<std::string> lines;  // without the indentation of the fence
};
// In order. One that is not closed goes to the end of the page.
std::vector<Fence> FencesOf(absl::string_view page);

struct Place {
  int line = 0;  // from 1
  std::string text;
};
// Where the links and pictures of a page lead, as they are written: `[a](TARGET)`, `[a]: TARGET`, `href="TARGET"`, `src="TARGET"`. Those in
// code are none.
std::vector<Place> LinksOf(absl::string_view page);
// What stands in bold (**text**), with its code, and with one space for a break of lines.
std::vector<Place> BoldOf(absl::string_view page);

// The fragments by which GitHub finds the headings of a page: lower case, without punctuation, '-' for a space, and "-1", "-2" behind those
// that were there before. Of other alphabets letters stay as they are written.
std::set<std::string> AnchorsOf(absl::string_view page);

}  // namespace fusionllm::docs
