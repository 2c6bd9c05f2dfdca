#include "comm/places.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::comm {
namespace {

// An id of 0 with bytes of 0 means: nothing to show, and nothing in the way of the direct way.
SharedPlace place_of(std::span<const std::byte> piece, bool needed) {
  SharedPlace none;
  none.buffer_bytes = needed ? 1 : 0;
  return needed && !piece.empty() ? find_shared(piece).value_or(none) : none;
}

bool is_in_the_way(const SharedPlace& place) { return place.id == 0 && place.buffer_bytes != 0; }

}  // namespace

struct PlaceExchange::Header {
  SharedPlace in;
  SharedPlace out;
  Store staging = Store::cached;
};

Outcome PlaceExchange::run(Slots& slots, const Offer& offer, const Limits& limits, Places& places) {
  const std::uint32_t ticket = slots.take_tickets();
  const Header mine{place_of(offer.in, offer.needs_in), place_of(offer.out, offer.needs_out), offer.staging};
  const auto fill = [&](std::byte* slot) { std::memcpy(slot, &mine, sizeof mine); };
  if (auto shown = slots.show(ticket, limits, fill); !shown.ok()) return shown;
  if (auto there = slots.see_all(ticket, limits); !there.ok()) return there;

  std::vector<Header> headers(pids_.size());
  for (std::size_t m = 0; m < headers.size(); ++m) {
    std::memcpy(&headers[m], slots.shown(static_cast<int>(m), ticket), sizeof(Header));
  }
  places.staging = headers.front().staging;
  places.direct = std::ranges::none_of(
      headers, [](const Header& header) { return is_in_the_way(header.in) || is_in_the_way(header.out); });
  return places.direct ? reach_all(offer, headers, slots.me(), places) : Outcome{};
}

Outcome PlaceExchange::reach_all(const Offer& offer, std::span<const Header> headers, int me,
                                 Places& places) {
  places.in.resize(headers.size());
  places.out.resize(headers.size());
  for (std::size_t m = 0; m < headers.size(); ++m) {
    if (static_cast<int>(m) == me) {
      places.in[m] = offer.in.data();
      places.out[m] = offer.out.data();
      continue;
    }
    const auto in = reach(m, headers[m].in);
    if (!in) return Outcome::failed(in.error().text());
    const auto out = reach(m, headers[m].out);
    if (!out) return Outcome::failed(out.error().text());
    places.in[m] = *in;
    places.out[m] = *out;
  }
  return {};
}

Result<std::byte*> PlaceExchange::reach(std::size_t member, const SharedPlace& place) {
  if (place.id == 0) return static_cast<std::byte*>(nullptr);
  const std::size_t bytes = place.buffer_bytes - std::min(place.buffer_bytes, place.offset);
  return mappings_.reach(pids_[member], place, bytes);
}

}  // namespace tutti::comm
