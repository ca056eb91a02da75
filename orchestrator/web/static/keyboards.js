// SPDX-License-Identifier: Apache-2.0
// Which keys make a text on a keyboard of the guest's layout (Linux's: /usr/share/X11/xkb/symbols). A row per row of keys;
// a blank is a key that makes nothing that is typed here.

const CODES = [
  ["Backquote", "Digit1", "Digit2", "Digit3", "Digit4", "Digit5", "Digit6", "Digit7", "Digit8", "Digit9", "Digit0", "Minus", "Equal"],
  ["KeyQ", "KeyW", "KeyE", "KeyR", "KeyT", "KeyY", "KeyU", "KeyI", "KeyO", "KeyP", "BracketLeft", "BracketRight"],
  ["KeyA", "KeyS", "KeyD", "KeyF", "KeyG", "KeyH", "KeyJ", "KeyK", "KeyL", "Semicolon", "Quote", "Backslash"],
  ["IntlBackslash", "KeyZ", "KeyX", "KeyC", "KeyV", "KeyB", "KeyN", "KeyM", "Comma", "Period", "Slash"],
];
// plain, with Shift, with AltGr; dead: makes its character when a space follows
const LAYOUTS = {
  us: {
    plain: ["`1234567890-=", "qwertyuiop[]", "asdfghjkl;'\\", " zxcvbnm,./"],
    shift: ["~!@#$%^&*()_+", "QWERTYUIOP{}", "ASDFGHJKL:\"|", " ZXCVBNM<>?"],
    altgr: [], dead: "",
  },
  gb: {
    plain: ["`1234567890-=", "qwertyuiop[]", "asdfghjkl;'#", "\\zxcvbnm,./"],
    shift: ["¬!\"£$%^&*()_+", "QWERTYUIOP{}", "ASDFGHJKL:@~", "|ZXCVBNM<>?"],
    altgr: ["    €"], dead: "",
  },
  de: {
    plain: ["^1234567890ß´", "qwertzuiopü+", "asdfghjklöä#", "<yxcvbnm,.-"],
    shift: ["°!\"§$%&/()=?`", "QWERTZUIOPÜ*", "ASDFGHJKLÖÄ'", ">YXCVBNM;:_"],
    altgr: ["  ²³   {[]}\\", "@ €        ~", "", "|      µ"], dead: "^´`",
  },
  fr: {
    plain: ["²&é\"'(-è_çà)=", "azertyuiop $", "qsdfghjklmù*", "<wxcvbn,;:!"],
    shift: [" 1234567890°+", "AZERTYUIOP £", "QSDFGHJKLM%µ", ">WXCVBN?./§"],
    altgr: ["  ~#{[|`\\^@]}", "  €"], dead: "",
  },
};
const OTHERS = { "\n": ["Enter", 0xff0d], "\t": ["Tab", 0xff09], " ": ["Space", 0x20] };
const SHIFT = ["ShiftLeft", 0xffe1];
const ALTGR = ["AltRight", 0xfe03];

function keyOf(layout, character) {
  for (const [level, modifier] of [["plain", null], ["shift", SHIFT], ["altgr", ALTGR]]) {
    for (const [row, characters] of LAYOUTS[layout][level].entries()) {
      const column = [...characters].indexOf(character);
      if (column >= 0) return [CODES[row][column], modifier];
    }
  }
  return null;
}

function keysymOf(character) {
  const point = character.codePointAt(0);
  return point < 0x100 ? point : 0x01000000 + point;
}

// Strokes as [code, keysym, pressed], in turn; null: the layout has no key for the character.
export function strokesOf(layout, character) {
  if (OTHERS[character]) return pressed(OTHERS[character], null);
  const key = keyOf(layout, character);
  if (key === null) return null;
  const strokes = pressed([key[0], keysymOf(character)], key[1]);
  return LAYOUTS[layout].dead.includes(character) ? strokes.concat(pressed(OTHERS[" "], null)) : strokes;
}

function pressed(key, modifier) {
  const stroke = [[...key, true], [...key, false]];
  return modifier === null ? stroke : [[...modifier, true], ...stroke, [...modifier, false]];
}
