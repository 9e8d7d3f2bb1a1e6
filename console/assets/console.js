// The live parts of a page: the center sends the HTML of those that have changed, and they are put in place.
// Nothing moves under the pointer: while it is on a row, a link or a field, or while the focus is in a live part, all parts wait.
'use strict';
(function () {
  var here = document.querySelector('nav [aria-current]');
  if (here) here.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // on a phone the navigation is wider than the screen
  var topic = document.body.dataset.topic;
  var hold = document.getElementById('hold');
  if (!topic || !hold || !window.EventSource) return;
  var shown = hold.parentElement.querySelector('span');
  var held = false, waiting = {}, canHover = matchMedia('(hover: hover)').matches;
  var since = shown.textContent;

  function busy() {
    if (canHover && document.querySelector('main tr:hover, main a:hover, main button:hover:not(#hold), main summary:hover, main form:hover, main svg:hover, main li:hover')) return true;
    var focus = document.activeElement;
    return Boolean(focus && focus.closest && focus.closest('[id^="live-"]:not(#live-state), main form'));
  }
  function say(text) { if (shown.textContent !== text) shown.textContent = text; }
  function show() {
    if (held) return;
    if (busy()) { say(since + ', waits for the pointer'); return; }
    Object.keys(waiting).forEach(function (id) {
      var part = document.getElementById(id);
      if (!part) return;
      var open = Array.prototype.map.call(part.querySelectorAll('details[open]'), function (d) { return d.id; });
      var scrolled = Array.prototype.map.call(part.querySelectorAll('.scroll'), function (s) { return [s.scrollLeft, s.scrollTop]; });
      part.innerHTML = waiting[id];
      open.forEach(function (name) { var d = name && document.getElementById(name); if (d) d.open = true; });
      Array.prototype.forEach.call(part.querySelectorAll('.scroll'), function (s, i) {
        if (scrolled[i]) { s.scrollLeft = scrolled[i][0]; s.scrollTop = scrolled[i][1]; }
      });
    });
    waiting = {};
    say(since);
  }

  hold.hidden = false;
  hold.setAttribute('aria-pressed', 'false');
  hold.addEventListener('click', function () {
    held = !held;
    hold.setAttribute('aria-pressed', String(held));
    hold.textContent = held ? 'Go on' : 'Hold still';
    if (held) say(since + ', held'); else show();
  });
  var source = new EventSource('/console/live?topic=' + encodeURIComponent(topic));
  source.onmessage = function (event) {
    var parts = JSON.parse(event.data);
    Object.keys(parts).forEach(function (id) { waiting[id] = parts[id]; });
    if (held) return;
    since = 'Live, ' + new Date().toISOString().slice(11, 19) + ' UTC';
    show();
  };
  source.onopen = function () { if (!held) { since = 'Live'; say(since); } };
  source.onerror = function () { if (!held) say('Not live: the center does not answer'); };
  setInterval(show, 500);
  window.addEventListener('pagehide', function () { source.close(); });
  window.addEventListener('pageshow', function (event) { if (event.persisted) location.reload(); });
}());
