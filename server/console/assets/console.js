// The live parts of a page: the page asks for their HTML every two seconds, and those that have changed are put in place.
// Nothing moves under the pointer: while it is on a row, a link or a field, or while the focus is in a live part, all parts wait.
'use strict';
(function () {
  var here = document.querySelector('nav [aria-current]');
  if (here) here.scrollIntoView({ block: 'nearest', inline: 'nearest' }); // on a phone the navigation is wider than the screen
  var topic = document.body.dataset.topic;
  var hold = document.getElementById('hold');
  if (!topic || !hold || !window.fetch) return;
  var shown = hold.parentElement.querySelector('span');
  var held = false, lost = false, seen = {}, waiting = {}, canHover = matchMedia('(hover: hover)').matches;
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
  function follow() {
    var again = 2000;
    if (document.hidden) { setTimeout(follow, again); return; }
    fetch('/console/live?topic=' + encodeURIComponent(topic), { cache: 'no-cache', redirect: 'error' }).then(function (answer) {
      if (!answer.ok) throw new Error(answer.status);
      return answer.json(); // of the last answer, if the center says 304
    }).then(function (parts) {
      var changed = Object.keys(parts).filter(function (id) { return seen[id] !== parts[id]; });
      changed.forEach(function (id) { seen[id] = waiting[id] = parts[id]; });
      if (held) return;
      if (changed.length || lost) since = 'Live, ' + new Date().toISOString().slice(11, 19) + ' UTC';
      lost = false;
      show();
    }).catch(function () {
      again = 5000;
      lost = true;
      if (!held) say('Not live: the center does not answer');
    }).then(function () { setTimeout(follow, again); });
  }
  follow();
  setInterval(show, 500);
  window.addEventListener('pageshow', function (event) { if (event.persisted) location.reload(); });
}());
