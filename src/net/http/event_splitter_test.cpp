#include "net/http/event_splitter.hpp"

#include <vector>

#include <gtest/gtest.h>

namespace tutti::net {
namespace {

struct Events : testing::Test {
  Result<bool> feed(std::string_view bytes) {
    return splitter.feed(bytes, [this](std::string_view event, std::string_view data) {
      seen.push_back(std::string(event) + "=" + std::string(data));
      return event != "last";
    });
  }

  EventSplitter splitter;
  std::vector<std::string> seen;
};

TEST_F(Events, AreTheSameInWhateverPiecesTheyCome) {
  const std::string stream = "event: a\r\ndata: one\r\n\r\n: nothing\n\ndata:two\ndata: more\n\nevent: b\n\n";
  EXPECT_TRUE(feed(stream).value());
  const auto at_once = seen;
  EXPECT_EQ(at_once, (std::vector<std::string>{"a=one", "=twomore", "b="}));
  seen.clear();
  for (const char byte : stream) EXPECT_TRUE(feed({&byte, 1}).value());
  EXPECT_EQ(seen, at_once);
}

TEST_F(Events, TheCallbackEndsThem) {
  EXPECT_FALSE(feed("event: last\n\nevent: more\n\n").value());
  EXPECT_EQ(seen, std::vector<std::string>{"last="});
}

TEST_F(Events, ALineThatDoesNotEndIsAnError) {
  const std::string piece(1 << 20, 'x');
  std::size_t fed = 0;
  Result<bool> goes_on = feed("data: ");
  for (; goes_on && fed <= 2 * event_bytes_max; fed += piece.size()) goes_on = feed(piece);
  ASSERT_FALSE(goes_on.ok());
  EXPECT_EQ(goes_on.error().message(), "an event is longer than 64 MiB");
  EXPECT_LE(fed, event_bytes_max + piece.size());
}

TEST_F(Events, AnEventThatDoesNotEndIsAnError) {
  const std::string line = "data: " + std::string(1 << 20, 'x') + "\n";
  std::size_t fed = 0;
  Result<bool> goes_on = true;
  for (; goes_on && fed <= 2 * event_bytes_max; fed += line.size()) goes_on = feed(line);
  ASSERT_FALSE(goes_on.ok());
  EXPECT_LE(fed, event_bytes_max + 2 * line.size());
  EXPECT_TRUE(seen.empty());
}

}  // namespace
}  // namespace tutti::net
