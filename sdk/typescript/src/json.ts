/** JSON of any value that a tool or a framework reports. */

/** Returns the value as one line of JSON. It never fails, because a report must not fail its tool. */
export function toJson(value: unknown): string {
  const above: object[] = [];
  try {
    return wellFormed(
      JSON.stringify(value, function (this: object, _key, member: unknown) {
        if (typeof member === "bigint") return member.toString();
        if (member instanceof Map) member = Object.fromEntries(member);
        if (member instanceof Set) member = [...member];
        if (member instanceof Error) member = { name: member.name, message: member.message };
        if (typeof member !== "object" || member === null) return member;
        // `this` holds the member: the values above it end there.
        while (above.length > 0 && above.at(-1) !== this) above.pop();
        if (above.includes(member)) return "…";
        above.push(member);
        return member;
      }) ?? "null",
    );
  } catch (error) {
    return JSON.stringify(`a value without a JSON form: ${String(error)}`);
  }
}

/** A lone surrogate has no UTF-8, and `JSON.stringify` escapes it: the server would reject the escape. */
const wellFormed = (text: string): string => text.replace(/(?<!\\)((?:\\\\)*)\\ud[89a-f][0-9a-f]{2}/g, "$1\ufffd");
