// What an engine answers over HTTP, as data: each page is a row, with who may ask for it, its limit, its
// words and its handler. Finding a page, 404 and 405, `tutti api` and the tables of docs/serving.md are all
// made of these rows. find_page() is pure: any thread; the pages themselves live on the loop.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "net/http/http.hpp"
#include "net/http/pattern.hpp"

namespace tutti::serve {

class Pages;

// A request for a page, with the method that it takes, from somebody who may ask.
struct Asked {
  std::shared_ptr<net::Exchange> exchange;
  net::Arguments arguments;
};

struct Page {
  std::string_view method = "GET";
  std::string_view path;  // as net/http/pattern.hpp has it
  bool needs_key = true;
  std::size_t body_bytes_max = 0;
  std::string_view summary;  // one line, as documents have it
  void (*handle)(Pages& pages, const Asked& asked) = nullptr;
};

// The rows of one path, a row for each method that it takes; none where there is no such page.
struct FoundPages {
  std::vector<const Page*> rows;
  net::Arguments arguments;

  // Null if no row takes the method.
  const Page* page(std::string_view method) const;
  // "GET, PUT"
  std::string methods() const;
  bool needs_key() const;
};

FoundPages find_page(std::span<const Page> table, std::span<const std::string> parts);

// What a kind of model answers. On the loop.
class Pages {
 public:
  Pages() = default;
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  virtual ~Pages() = default;

  virtual std::span<const Page> rows() const = 0;
  // In the words of its protocol; counted.
  virtual net::Response refusal(int status, const Error& error) = 0;
  virtual bool is_idle() const = 0;
  // Whoever waits for an answer is told that there will be none.
  virtual void cancel_all() = 0;
  // An answer that is no refusal goes out.
  virtual void count(int status) = 0;
};

// For rows of what is only looked at: `page` makes it, and refuses by refusal().
template <class Kind, net::Response (Kind::*page)(const Asked&)>
void show(Pages& pages, const Asked& asked) {
  net::Response response = (static_cast<Kind&>(pages).*page)(asked);
  if (response.status == 200) pages.count(200);
  asked.exchange->answer(std::move(response));
}

}  // namespace tutti::serve
