/**
 * The signals of pending decisions: their count in the icon of the page, and desktop notifications.
 */

/** Pixels of the icon. */
const ICON_PX = 64;

/**
 * Draws the icon of the page, with a count if there is one.
 * @param {number} count
 */
export function drawIcon(count) {
  const canvas = Object.assign(document.createElement("canvas"), { width: ICON_PX, height: ICON_PX });
  const context = canvas.getContext("2d");
  const link = document.getElementById("icon");
  if (!context || !(link instanceof HTMLLinkElement)) return;
  context.strokeStyle = "#6478e8";
  context.lineWidth = 8;
  context.lineCap = "round";
  context.beginPath();
  context.moveTo(12, 54);
  context.lineTo(12, 30);
  context.arc(32, 30, 20, Math.PI, 0);
  context.lineTo(52, 54);
  context.stroke();
  if (count > 0) {
    context.fillStyle = "#d98e0b";
    context.beginPath();
    context.arc(42, 42, 22, 0, 2 * Math.PI);
    context.fill();
    context.fillStyle = "#fff";
    context.font = "bold 32px sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    context.fillText(count > 9 ? "9+" : String(count), 42, 44);
  }
  link.href = canvas.toDataURL("image/png");
}

/**
 * Shows a desktop notification for each decision. A click opens it.
 * @param {import("./pending.js").PendingItem[]} items
 * @param {(item: import("./pending.js").PendingItem) => void} open
 */
export function notify(items, open) {
  for (const item of items) {
    const notification = new Notification(item.title, { body: item.entry.title || item.entry.id, tag: item.key });
    notification.onclick = () => {
      focus();
      open(item);
      notification.close();
    };
  }
}
